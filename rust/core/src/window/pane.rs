//! What a pane holds: anything that can be added up.

/// The content of a stretch of time.
pub trait Pane {
    /// Adds another stretch.
    fn absorb(&mut self, other: &Self);
}

impl<P: Pane> Pane for Box<P> {
    fn absorb(&mut self, other: &Self) {
        (**self).absorb(other);
    }
}

impl Pane for u64 {
    fn absorb(&mut self, other: &Self) {
        *self += other;
    }
}

impl<S: crate::sketch::Store> Pane for crate::sketch::Sketch<S> {
    fn absorb(&mut self, other: &Self) {
        self.merge(other).expect("panes of one window have one scale and rule");
    }
}
