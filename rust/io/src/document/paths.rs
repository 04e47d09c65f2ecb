//! What is asked for of a document: paths, and the tree that they make.

/// What becomes of the value at a node of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// It belongs to what is around it.
    #[default]
    Part,
    /// It is given as text.
    Text,
    /// It is given as numbers.
    Numbers(Numbers),
    /// It is passed over.
    Nothing,
}

/// How an array of numbers is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// As integers.
    pub whole: bool,
    /// As an array of arrays.
    pub ragged: bool,
}

/// A node: what is known of the values at one place.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Its path as it was asked for, or as it would be.
    pub path: String,
    /// What becomes of them.
    pub role: Role,
    /// Their members.
    pub keys: Vec<(Vec<u8>, usize)>,
    /// Their elements.
    pub each: Option<usize>,
}

impl Node {
    /// Whether something in the value is given or passed over by itself.
    pub fn is_inner(&self) -> bool {
        self.each.is_some() || !self.keys.is_empty()
    }

    /// The node of a member.
    #[inline]
    pub fn member(&self, key: &[u8]) -> Option<usize> {
        self.keys.iter().find(|(name, _)| name == key).map(|&(_, node)| node)
    }
}

/// What is asked for of documents.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Paths of values that are given as text.
    pub select: Vec<String>,
    /// Paths of arrays of numbers.
    pub columns: Vec<String>,
    /// Paths of arrays of integers.
    pub integers: Vec<String>,
    /// Paths of what is passed over.
    pub skip: Vec<String>,
    /// A value must end on its line.
    pub lines: bool,
    /// The longest text that is given, in bytes.
    pub limit: usize,
}

/// One step of a path.
enum Step {
    Member(Vec<u8>),
    Each,
}

impl Wanted {
    /// Whether the paths are in order.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        self.tree().map(|_| ())
    }

    /// The tree of all paths; its root is the first node.
    pub(super) fn tree(&self) -> Result<Vec<Node>, String> {
        let mut tree = vec![Node { path: "$".to_owned(), ..Node::default() }];
        let lists = [
            (&self.select, Role::Text),
            (&self.columns, Role::Numbers(Numbers { whole: false, ragged: false })),
            (&self.integers, Role::Numbers(Numbers { whole: true, ragged: false })),
            (&self.skip, Role::Nothing),
        ];
        for (paths, role) in lists {
            for path in paths {
                add(&mut tree, path, role)?;
            }
        }
        let nested = tree.iter().find(|node| node.is_inner() && !matches!(node.role, Role::Part | Role::Text));
        match nested {
            Some(node) => Err(format!("nothing can be asked for within {:?}, which is given or skipped", node.path)),
            None => Ok(tree),
        }
    }
}

fn add(tree: &mut Vec<Node>, path: &str, role: Role) -> Result<(), String> {
    let mut steps = steps(path)
        .ok_or_else(|| format!(r#"a path must be like $, a.b, a[*].b, [*] or ["odd.key"], got {path:?}"#))?;
    let mut role = role;
    if let (Role::Numbers(numbers), Some(Step::Each)) = (&mut role, steps.last()) {
        numbers.ragged = true;
        steps.pop();
    }
    let mut place = 0;
    for step in steps {
        let next = match &step {
            Step::Each => tree[place].each,
            Step::Member(key) => tree[place].member(key),
        };
        place = next.unwrap_or_else(|| {
            let node = tree.len();
            let around = &tree[place].path;
            let around = if around == "$" { "" } else { around };
            let path = match &step {
                Step::Each => format!("{around}[*]"),
                Step::Member(key) => member_path(around, &String::from_utf8_lossy(key)),
            };
            tree.push(Node { path, ..Node::default() });
            match step {
                Step::Each => tree[place].each = Some(node),
                Step::Member(key) => tree[place].keys.push((key, node)),
            }
            node
        });
    }
    let node = &mut tree[place];
    if node.role != Role::Part {
        return Err(format!("{path:?} is asked for twice"));
    }
    (node.role, node.path) = (role, path.to_owned());
    Ok(())
}

fn member_path(around: &str, key: &str) -> String {
    if key.is_empty() || key.contains(['.', '[', ']', '"', '$']) {
        format!(r#"{around}["{key}"]"#)
    } else if around.is_empty() {
        key.to_owned()
    } else {
        format!("{around}.{key}")
    }
}

/// The steps of a path; none if it is no path.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    if path.is_empty() {
        return None;
    }
    // The first name has no dot, unless after a dollar.
    let mut needs_dot = rest.len() < path.len();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix("[*]") {
            steps.push(Step::Each);
            rest = after;
        } else if let Some(after) = rest.strip_prefix("[\"") {
            let (key, after) = after.split_once("\"]")?;
            steps.push(Step::Member(key.as_bytes().to_vec()));
            rest = after;
        } else {
            rest = if needs_dot { rest.strip_prefix('.')? } else { rest };
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (key, after) = rest.split_at(end);
            if key.is_empty() || key.contains([']', '"', '$']) {
                return None;
            }
            steps.push(Step::Member(key.as_bytes().to_vec()));
            rest = after;
        }
        needs_dot = true;
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::{Numbers, Role, Wanted};

    fn wanted(select: &[&str], columns: &[&str], skip: &[&str]) -> Wanted {
        let owned = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
        Wanted { select: owned(select), columns: owned(columns), skip: owned(skip), ..Wanted::default() }
    }

    #[test]
    fn paths_make_a_tree() {
        let tree = wanted(&["$", "runs[*].requests[*]", r#"["a.b"].c"#], &["itls[*]", "$.ttfts"], &["runs[*].texts"])
            .tree()
            .unwrap();
        let paths: Vec<&str> = tree.iter().map(|node| node.path.as_str()).collect();
        let expected = [
            "$",
            "runs",
            "runs[*]",
            "runs[*].requests",
            "runs[*].requests[*]",
            r#"["a.b"]"#,
            r#"["a.b"].c"#,
            "itls[*]",
            "$.ttfts",
            "runs[*].texts",
        ];
        assert_eq!(paths, expected);
        assert_eq!(tree[7].role, Role::Numbers(Numbers { whole: false, ragged: true }));
        assert_eq!((tree[7].each, tree[8].role == tree[7].role), (None, false));
        assert_eq!((tree[0].role, tree[9].role, tree[2].role), (Role::Text, Role::Nothing, Role::Part));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for path in ["", ".", "a.", ".a", "a..b", "a[0]", "a[*", "a]", "$a", "a$", "a[*]b", "[\"a", "a.[*]"] {
            let refused = wanted(&[path], &[], &[]).tree().unwrap_err();
            assert!(refused.contains("a path must be like"), "{path:?}: {refused}");
        }
        assert!(wanted(&["a"], &["a"], &[]).tree().unwrap_err().contains("twice"));
        assert!(wanted(&["a.b"], &[], &["a"]).tree().unwrap_err().contains("within"));
        assert!(wanted(&["a[*].b"], &["a[*]"], &[]).tree().unwrap_err().contains("within"));
    }
}
