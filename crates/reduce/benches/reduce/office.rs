//! Folders of office documents, each text in XML and a picture, as an archive holds them: deflated, or as they are.

use std::fmt::Write;

use miniz_oxide::deflate::compress_to_vec;

use crate::source::{Noise, noise};

/// zlib's own.
const LEVEL: u8 = 6;
const WORDS: u64 = 6000;
/// One document in so many is edited.
const EDITED: u64 = 3;
/// Paragraphs written anew in it, and as many put in.
const EDITS: u64 = 3;

/// How an archive holds text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Deflated,
    Plain,
}

/// Two versions of a folder whose documents have so many bytes as they are.
pub fn folders(bytes: usize, kept: Kept) -> (Vec<u8>, Vec<u8>) {
    let words = words();
    let mut choices = Noise::new(7);
    let (mut first, mut second, mut made) = (Vec::new(), Vec::new(), 0);
    while made < bytes {
        let mut paragraphs = paragraphs(&mut choices, &words);
        let picture_bytes = choices.below(150_000) as usize;
        let picture = noise(choices.next(), picture_bytes);
        let text = text_of(&paragraphs);
        made += text.len() + picture.len();
        put(&text, &picture, kept, &mut first);
        if choices.below(EDITED) == 0 {
            edit(&mut paragraphs, &mut choices, &words);
        }
        put(&text_of(&paragraphs), &picture, kept, &mut second);
    }
    (first, second)
}

/// Of three to twelve letters.
fn words() -> Vec<String> {
    let mut letters = Noise::new(6);
    let mut word = || {
        let length = 3 + letters.below(5) + letters.below(6);
        let letter = |_| char::from(b'a' + letters.below(26).min(letters.below(26)) as u8);
        (0..length).map(letter).collect()
    };
    (0..WORDS).map(|_| word()).collect()
}

fn paragraphs(choices: &mut Noise, words: &[String]) -> Vec<String> {
    let count = 200 + choices.below(800);
    (0..count).map(|_| paragraph(choices, words)).collect()
}

/// Some words come much more often than others.
fn paragraph(choices: &mut Noise, words: &[String]) -> String {
    let mut text = format!(
        "<w:p w:rsidR=\"{:08X}\"><w:pPr><w:pStyle w:val=\"Body\"/></w:pPr><w:r><w:t>",
        choices.next() as u32
    );
    for _ in 0..10 + choices.below(90) {
        let rank =
            choices.below(WORDS) * choices.below(WORDS) / WORDS * choices.below(WORDS) / WORDS;
        let _ = write!(text, "{} ", words[rank as usize]);
    }
    text + "</w:t></w:r></w:p>"
}

fn edit(paragraphs: &mut Vec<String>, choices: &mut Noise, words: &[String]) {
    for _ in 0..EDITS {
        let at = choices.below(paragraphs.len() as u64) as usize;
        paragraphs[at] = paragraph(choices, words);
        let at = choices.below(paragraphs.len() as u64) as usize;
        paragraphs.insert(at, paragraph(choices, words));
    }
}

fn text_of(paragraphs: &[String]) -> Vec<u8> {
    let text = paragraphs.concat();
    format!("<w:document><w:body>{text}</w:body></w:document>").into_bytes()
}

/// Two members of an archive: what each is, its length, its bytes.
fn put(text: &[u8], picture: &[u8], kept: Kept, folder: &mut Vec<u8>) {
    let held = match kept {
        Kept::Deflated => compress_to_vec(text, LEVEL),
        Kept::Plain => text.to_vec(),
    };
    for (name, bytes) in [
        ("word/document.xml", held.as_slice()),
        ("word/media/image1.jpeg", picture),
    ] {
        folder.extend_from_slice(b"PK\x03\x04");
        folder.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        folder.extend_from_slice(name.as_bytes());
        folder.extend_from_slice(bytes);
    }
}
