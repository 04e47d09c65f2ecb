//! Documents in parts: whatever the sizes in which they are read, and whatever is wrong with them.

use std::io::{self, Read};

use proptest::prelude::*;
use serde_json::Value as Json;
use tokenpulse_io::{ABSENT, Document, Fault, Part, Skip, Value, Wanted};

/// Gives a text in pieces of the sizes given, over and over.
struct Pieces {
    text: Vec<u8>,
    at: usize,
    sizes: Vec<usize>,
    turn: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        if self.turn % 7 == 3 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let size = self.sizes[self.turn % self.sizes.len()].min(buffer.len()).min(self.text.len() - self.at);
        buffer[..size].copy_from_slice(&self.text[self.at..self.at + size]);
        self.at += size;
        Ok(size)
    }
}

fn wanted(select: &[&str], columns: &[&str], integers: &[&str], skip: &[&str]) -> Wanted {
    let owned = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect();
    Wanted {
        select: owned(select),
        columns: owned(columns),
        integers: owned(integers),
        skip: owned(skip),
        lines: false,
        limit: 1 << 20,
    }
}

fn in_pieces(text: &[u8], wanted: &Wanted, sizes: &[usize]) -> Document<Pieces> {
    let pieces = Pieces { text: text.to_vec(), at: 0, sizes: sizes.to_vec(), turn: 0 };
    Document::new(pieces, wanted, Box::new(|| true)).unwrap()
}

/// A fault: why, its line and byte, and in words.
type At = (Skip, u64, u64, String);

/// What a document gives, in a form that can be compared, and its fault. The path's number is made its name.
fn given(document: &mut Document<Pieces>) -> (Vec<String>, Option<At>) {
    let mut parts = Vec::new();
    loop {
        match document.next_part() {
            Ok(Some(Part { path, at, line, value })) => {
                let value = match value {
                    Value::Text(text) => String::from_utf8(text).unwrap(),
                    other => format!("{other:?}"),
                };
                parts.push(format!("{} {at:?} {line} {value}", document.path(path)));
            }
            Ok(None) => return (parts, None),
            Err(Fault::Text { skip, line, byte, message }) => {
                assert!(matches!(document.next_part(), Ok(None)));
                return (parts, Some((skip, line, byte, message)));
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn all(text: &str, wanted: &Wanted) -> (Vec<String>, Option<At>) {
    given(&mut in_pieces(text.as_bytes(), wanted, &[1 << 20]))
}

const RUNS: &str = r#"
{"date":"today","ttfts":[0.5, 1e-3,null,"2.5",NaN,-Infinity,17],"itls":[[0.25,0],[],null,["1e2"]],
 "lens" : [1,2.0,"3",null,-9223372036854775807,1763946000123456789] , "texts":["a\"\u00e9\ud83d\ude00",{"b":[1]}],
 "runs":[{"id":"a","requests":[{"n":1},{"n":2,"out":"x,]}"}],"end":true},{"requests":[],"id":"b"},3],"last":{"ttfts":[]}}
[1,2]{"ttfts":null,"runs":{}} "é" -1.5e3
"#;

fn runs() -> Wanted {
    wanted(
        &["$", "runs[*].requests[*]", "runs[*]"],
        &["ttfts", "itls[*]"],
        &["lens"],
        &["texts", "runs[*].requests[*].out"],
    )
}

#[test]
fn parts_come_before_what_they_are_cut_out_of() {
    let (parts, fault) = all(RUNS, &runs());
    let expected = [
        "ttfts [0] 2 Floats([0.5, 0.001, NaN, 2.5, NaN, -inf, 17.0])",
        "itls[*] [0] 2 RaggedFloats([0.25, 0.0, 100.0], [0, 2, 2, 2, 3])",
        "lens [0] 3 Integers([1, 2, 3, -9223372036854775808, -9223372036854775807, 1763946000123456789])",
        r#"runs[*].requests[*] [0, 0, 0] 4 {"n":1}"#,
        r#"runs[*].requests[*] [0, 0, 1] 4 {"n":2}"#,
        r#"runs[*] [0, 0] 4 {"id":"a","requests":[],"end":true}"#,
        r#"runs[*] [0, 1] 4 {"requests":[],"id":"b"}"#,
        "runs[*] [0, 2] 4 3",
        r#"$ [0] 4 {"date":"today","runs":[],"last":{"ttfts":[]}}"#,
        "$ [1] 5 [1,2]",
        "ttfts [2] 5 null",
        r#"$ [2] 5 {"runs":{}}"#,
        r#"$ [3] 5 "é""#,
        "$ [4] 5 -1.5e3",
    ];
    assert_eq!((parts, fault), (expected.map(str::to_owned).to_vec(), None));
    assert_eq!(ABSENT, i64::MIN);
}

#[test]
fn sizes_of_reading_make_no_difference() {
    let expected = all(RUNS, &runs());
    for sizes in [&[1][..], &[2], &[3], &[1, 7], &[5, 1, 1], &[64, 1]] {
        assert_eq!(given(&mut in_pieces(RUNS.as_bytes(), &runs(), sizes)), expected, "{sizes:?}");
    }
}

#[test]
fn a_long_text_is_read_through_a_window() {
    // Several times the window, so that every kind of token lies across its edge somewhere.
    let row = |number| {
        format!(r#"{{"id":"r\u00e9-{number}","é":[{number}.25,{number}e1 ,null],"x":{{"y":"{number:0>20}"}}}}"#)
    };
    let text = format!("[{},{{}}]", (0..40_000).map(row).collect::<Vec<_>>().join(","));
    let wanted = wanted(&["[*]"], &["[*].é"], &[], &["[*].x.y"]);
    let (parts, fault) = all(&text, &wanted);
    assert_eq!((parts.len(), fault), (80_001, None));
    assert_eq!(parts[79_998], "[*].é [0, 39999] 1 Floats([39999.25, 399990.0, NaN])");
    assert_eq!(parts[79_999], r#"[*] [0, 39999] 1 {"id":"r\u00e9-39999","x":{}}"#);
    assert_eq!(given(&mut in_pieces(text.as_bytes(), &wanted, &[262_139, 5, 1])).0, parts);
}

#[test]
fn a_key_that_comes_again() {
    let text = r#"{"a":{"b":1,"b":2},"a":{"b":3},"\u0061":0,"c":[1],"c":[2],"d":5,"d":6}"#;
    let (parts, fault) = all(text, &wanted(&["$", "a.b"], &["c"], &[], &[]));
    let expected = [
        "a.b [0] 1 1",
        "a.b [0] 1 2",
        "a [0] 1 Again",
        "a.b [0] 1 3",
        "a [0] 1 Again",
        "c [0] 1 Floats([1.0])",
        "c [0] 1 Floats([2.0])",
        r#"$ [0] 1 {"a":{},"a":{},"\u0061":0,"d":5,"d":6}"#,
    ];
    assert_eq!((parts, fault), (expected.map(str::to_owned).to_vec(), None));
}

#[test]
fn what_was_good_before_a_fault_is_given() {
    let wanted = wanted(&["[*]"], &["[*].c"], &["[*].i"], &["[*].s"]);
    let deep = format!("[{}", "[".repeat(128));
    let faults = [
        ("[1,2", Skip::Truncated, 4, "a comma or the array's end, but the text ends"),
        ("[1,\n\"a", Skip::Truncated, 6, "the string's end, but the text ends"),
        ("[1,}", Skip::NotJson, 3, "a JSON value"),
        ("[1,]", Skip::NotJson, 3, "a JSON value"),
        ("[1 2]", Skip::NotJson, 3, "a comma or the array's end"),
        ("[1,{\"a\" 1}]", Skip::NotJson, 8, "a colon"),
        ("[1,{a:1}]", Skip::NotJson, 4, "a string"),
        ("[1,{\"s\":1,}]", Skip::NotJson, 10, "a string"),
        ("[1,{\"s\":[1}]", Skip::NotJson, 10, "a comma or the array's end"),
        ("[1,{\"s\":\"\\x\"}]", Skip::NotJson, 10, "an escape that JSON has"),
        ("[1,{\"s\":\"\\u12g4\"}]", Skip::NotJson, 13, "four hexadecimal digits"),
        ("[1,\"\t\"]", Skip::NotJson, 4, "the string's end"),
        ("[1,-]", Skip::NotJson, 4, "a JSON value"),
        ("[1,1.]", Skip::NotJson, 5, "a digit"),
        ("[1,01]", Skip::NotJson, 4, "a comma or the array's end"),
        ("[1,{\"c\":[true]}]", Skip::WrongType, 9, "a number or null in \"[*].c\""),
        ("[1,{\"c\":[\"x\"]}]", Skip::WrongType, 12, "a number or null in \"[*].c\""),
        ("[1,{\"c\":[1,[2]]}]", Skip::WrongType, 11, "a number or null in \"[*].c\""),
        ("[1,{\"i\":[1.5]}]", Skip::WrongType, 12, "an integer of 64 bits or null in \"[*].i\""),
        ("[1,{\"i\":[9223372036854775808]}]", Skip::WrongType, 28, "an integer of 64 bits or null in \"[*].i\""),
        ("[1,{\"i\":[NaN]}]", Skip::WrongType, 12, "an integer of 64 bits or null in \"[*].i\""),
        ("[1,{\"c\":[1,]}]", Skip::NotJson, 11, "a JSON value"),
        (&format!("[1,{deep}"), Skip::TooDeep, 130, "arrays and objects to nest at most 128 deep"),
    ];
    for (text, skip, byte, message) in faults {
        for sizes in [&[1 << 20][..], &[1]] {
            let (parts, fault) = given(&mut in_pieces(text.as_bytes(), &wanted, sizes));
            let line = text.bytes().take(byte as usize).filter(|&byte| byte == b'\n').count() as u64 + 1;
            assert_eq!(fault, Some((skip, line, byte, format!("expected {message}"))), "{text}");
            assert_eq!(parts[0], "[*] [0, 0] 1 1", "{text}");
        }
    }
}

#[test]
fn what_may_stand_between_values() {
    let wanted = wanted(&["$"], &[], &[], &[]);
    let count = |text: &str| {
        let (parts, fault) = all(text, &wanted);
        (parts.len(), fault.map(|(_, _, byte, _)| byte))
    };
    assert_eq!(count(""), (0, None));
    assert_eq!(count(" \n\t\r"), (0, None));
    assert_eq!(count("\u{feff}{}"), (1, None));
    assert_eq!(count("\u{fefe}{}"), (0, Some(3)));
    assert_eq!(count("{}\u{feff}"), (1, Some(2)));
    assert_eq!(count("{}[]\"\"1 NaN null"), (6, None));
    assert_eq!(count("1,2"), (1, Some(1)));
    assert_eq!(count("01"), (1, Some(1)));
    assert_eq!(count("truefalse"), (1, Some(4)));
    assert_eq!(count("{}\0"), (1, Some(2)));
    assert_eq!(count("}"), (0, Some(0)));
}

#[test]
fn a_line_at_fault_is_passed_over() {
    let text = b"{\"a\":1}\n\n{\"a\":\n{\"a\":2} \r\n{\"a\":3} {}\n\xff\xff\n[\"\xe9\"]\n{\"a\":4}\n{\"a\":\"\xc3";
    let wanted = Wanted { lines: true, ..wanted(&["$"], &[], &[], &[]) };
    for sizes in [&[1 << 20][..], &[1], &[3, 2]] {
        let mut document = in_pieces(text, &wanted, sizes);
        let (mut parts, mut faults) = (Vec::new(), Vec::new());
        for _ in 0..9 {
            let (some, fault) = given(&mut document);
            parts.extend(some);
            faults.extend(fault.map(|(skip, line, _, _)| (skip.name(), line)));
            document.skip_line();
        }
        let expected = [r#"$ [0] 1 {"a":1}"#, r#"$ [2] 4 {"a":2}"#, r#"$ [3] 5 {"a":3}"#, r#"$ [6] 8 {"a":4}"#];
        assert_eq!(
            parts.iter().map(|part| part.split_at(6).1).collect::<Vec<_>>(),
            expected.map(|part| part.split_at(6).1)
        );
        let expected = [("not_json", 3), ("not_json", 5), ("not_utf8", 6), ("not_utf8", 7), ("not_utf8", 9)];
        assert_eq!(faults, expected, "{sizes:?}");
    }
}

#[test]
fn a_value_may_only_be_so_long() {
    let wanted = Wanted { limit: 10, lines: true, ..wanted(&["$", "b"], &["c"], &[], &["s"]) };
    let long = "x".repeat(300_000);
    let text = format!(
        "{{\"b\":\"{long}\"}}\n{{\"a\":\"{long}\"}}\n{{\"s\":\"{long}\",\"c\":[1,2,3,4,5,6,7,8]}}\n[0,1,2,3,4,5,6,7]\n[5]\n"
    );
    let mut document = in_pieces(text.as_bytes(), &wanted, &[1000]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (parts, fault) = given(&mut document);
        seen.extend(parts);
        seen.extend(fault.map(|(skip, line, _, message)| format!("{} {line} {message}", skip.name())));
        document.skip_line();
    }
    let expected = [
        "too_long 1 expected a value of at most 10 bytes",
        "too_long 2 expected a value of at most 10 bytes",
        "c [2] 3 Floats([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])",
        "$ [2] 3 {}",
        "too_long 4 expected a value of at most 10 bytes",
        "$ [4] 5 [5]",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn the_reader_is_asked_to_go_on_and_its_errors_are_told() {
    let many = wanted(&["$"], &[], &[], &[]);
    let text = "[1]\n".repeat(1 << 20);
    let mut left = 2;
    let stops = Box::new(move || {
        left -= 1;
        left > 0
    });
    let pieces = Pieces { text: text.into_bytes(), at: 0, sizes: vec![1 << 20], turn: 0 };
    let mut document = Document::new(pieces, &many, stops).unwrap();
    let outcome = std::iter::repeat_with(|| document.next_part()).find(|outcome| !matches!(outcome, Ok(Some(_))));
    assert!(matches!(outcome, Some(Err(Fault::Stopped))));

    let broken = b"[1,2".chain(Broken);
    let mut document = Document::new(broken, &many, Box::new(|| true)).unwrap();
    assert!(matches!(document.next_part(), Err(Fault::Io(error)) if error.to_string() == "broken"));
    assert!(matches!(document.next_part(), Ok(None)));
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("broken"))
    }
}

fn documents() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-1e9..1e9).prop_map(Json::from),
        "\\PC*".prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::hash_map("[a-c\"\\\\é]{0,2}", inner, 0..6).prop_map(Json::from_iter),
        ]
    })
}

fn json(text: &[u8]) -> bool {
    // Python makes an infinity of a number that is too large.
    serde_json::from_slice::<Json>(text).map_or_else(|error| error.to_string().contains("out of range"), |_| true)
}

proptest! {
    #[test]
    fn parts_are_what_they_are_in_the_whole(document in documents(), pretty: bool, sizes in prop::collection::vec(1_usize..9, 1..4)) {
        let text = if pretty { serde_json::to_vec_pretty(&document) } else { serde_json::to_vec(&document) }.unwrap();
        let (parts, fault) = given(&mut in_pieces(&text, &wanted(&["$", "a.b", "[*][*].a"], &[], &[], &["[*][*].b"]), &sizes));
        prop_assert_eq!(fault, None);
        // Numbers as serde_json reads them.
        let mut whole: Json = serde_json::from_slice(&text).unwrap();
        let mut expected = Vec::new();
        if let Some(inner) = whole.get_mut("a").and_then(Json::as_object_mut).and_then(|inner| inner.remove("b")) {
            expected.push(("a.b [0]".to_owned(), inner));
        }
        for (i, row) in whole.as_array_mut().into_iter().flatten().enumerate() {
            for (j, cell) in row.as_array_mut().into_iter().flatten().enumerate() {
                if let Some(cell) = cell.as_object_mut() {
                    cell.remove("b");
                    expected.extend(cell.remove("a").map(|inner| (format!("[*][*].a [0, {i}, {j}]"), inner)));
                }
            }
        }
        expected.push(("$ [0]".to_owned(), whole));
        let found: Vec<(String, Json)> = parts.iter().map(|part| {
            let (place, rest) = part.split_at(part.find("] ").unwrap() + 1);
            let value = rest[1..].split_once(' ').unwrap().1;
            (place.to_owned(), serde_json::from_str(value).unwrap())
        }).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn what_is_taken_is_json(mut text in prop::collection::vec(prop::sample::select(b"{}[],:\"\\u0019.eE+-ntrfalsed \n\xc3\xa9".to_vec()), 0..24)) {
        let (parts, fault) = given(&mut in_pieces(&text, &wanted(&["$"], &[], &[], &[]), &[2]));
        let is_json = json(&text);
        // Texts that we take as several values are none to serde_json.
        prop_assert!(is_json == (fault.is_none() && parts.len() == 1), "{:?}", String::from_utf8_lossy(&text));
        text.insert(0, b'[');
        text.push(b']');
        let (_, fault) = given(&mut in_pieces(&text, &wanted(&["[*]"], &[], &[], &[]), &[3]));
        let is_json = json(&text);
        prop_assert!(!is_json || fault.is_none(), "{:?}", String::from_utf8_lossy(&text));
    }
}
