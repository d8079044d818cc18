//! "Did you mean": the closest known word to a mistyped one.

/// Longer words are not mistyped names.
const WORD_CHARS_MAX: usize = 32;

/// The candidate closest to `word`, if few enough edits lead to it.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let chars = word.chars().count();
    if chars > WORD_CHARS_MAX {
        return None;
    }
    let allowed = chars.div_ceil(3);
    candidates
        .into_iter()
        .filter(|candidate| !candidate.is_empty())
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(edits, candidate)| *edits <= allowed && *edits < candidate.chars().count())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance in characters.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, b) in row.iter_mut().skip(1).zip(&other) {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = *cell;
            left = replaced.min(*cell + 1).min(left + 1);
            *cell = left;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("delay", "delay"), 0);
    }

    #[test]
    fn only_close_words_are_suggested() {
        let words = ["delay", "loss", "oc1"];
        assert_eq!(closest("dely", words), Some("delay"));
        assert_eq!(closest("oc2", words), Some("oc1"));
        assert_eq!(closest("bandwidth", words), None);
        assert_eq!(closest(&"x".repeat(10_000), words), None);
    }
}
