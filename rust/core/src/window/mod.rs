//! Time cut into panes: a ring for what is recent, a timeline for a whole run, and the guard before both.

mod horizon;
mod pane;
mod ring;
mod sliding;
mod timeline;

pub use horizon::Horizon;
pub use pane::Pane;
pub use ring::{Reading, Ring, check_widths};
pub use sliding::SlidingSketch;
pub use timeline::Timeline;
