//! The linear system of repairs that do not suffice yet, kept in reduced form: every equation has
//! a pivot, an unknown row that occurs in no other, so a row is solved when its equation has no
//! other unknown left (incremental Gauss-Jordan elimination).

use super::gf256::{add_multiple, inverse, multiply, scale};
use super::{EQUATIONS_MAX, Name, UNKNOWN_ROWS_MAX};

/// A row of a datagram that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unknown {
    pub(super) name: Name,
    pub(super) row: u8,
}

/// The sum of coefficient x unknown row is `sum`.
#[derive(Debug)]
pub(super) struct Equation {
    /// Sorted by unknown; no coefficient is zero.
    terms: Vec<(Unknown, u8)>,
    sum: Vec<u8>,
    /// When it came, in datagrams received.
    born: u64,
    pivot: Option<Unknown>,
}

impl Equation {
    /// `terms` in any order; an unknown named twice is added up.
    pub(super) fn new(terms: Vec<(Unknown, u8)>, sum: Vec<u8>, born: u64) -> Self {
        let mut equation = Equation {
            terms: Vec::with_capacity(terms.len()),
            sum,
            born,
            pivot: None,
        };
        for (unknown, factor) in terms {
            equation.add_term(unknown, factor);
        }
        equation
    }

    fn add_term(&mut self, unknown: Unknown, factor: u8) {
        match self.terms.binary_search_by_key(&unknown, |term| term.0) {
            Ok(at) => {
                let before = self.terms.get(at).map_or(0, |term| term.1);
                match before ^ factor {
                    0 => drop(self.terms.remove(at)),
                    sum => self
                        .terms
                        .iter_mut()
                        .skip(at)
                        .take(1)
                        .for_each(|term| term.1 = sum),
                }
            }
            Err(at) if factor != 0 => self.terms.insert(at, (unknown, factor)),
            Err(_) => {}
        }
    }

    fn factor_of(&self, unknown: Unknown) -> u8 {
        let at = self.terms.binary_search_by_key(&unknown, |term| term.0);
        at.ok()
            .and_then(|at| self.terms.get(at))
            .map_or(0, |term| term.1)
    }

    /// Adds `factor` x `other`.
    fn add(&mut self, other: &Equation, factor: u8) {
        for (unknown, of_other) in &other.terms {
            self.add_term(*unknown, multiply(*of_other, factor));
        }
        add_multiple(&mut self.sum, &other.sum, factor);
    }

    /// Puts a row that has become known in.
    fn substitute(&mut self, unknown: Unknown, row: &[u8]) {
        let factor = self.factor_of(unknown);
        if factor != 0 {
            self.add_term(unknown, factor);
            add_multiple(&mut self.sum, row, factor);
        }
    }

    /// Chooses a pivot and makes its coefficient one.
    fn normalise(&mut self) {
        if let Some((unknown, factor)) = self.terms.first().copied() {
            let by = inverse(factor);
            scale(&mut self.sum, by);
            self.terms
                .iter_mut()
                .for_each(|term| term.1 = multiply(term.1, by));
            self.pivot = Some(unknown);
        }
    }
}

/// Every repair that waits for others.
#[derive(Debug, Default)]
pub(super) struct System {
    equations: Vec<Equation>,
}

impl System {
    pub(super) fn is_empty(&self) -> bool {
        self.equations.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.equations.len()
    }

    /// Forgets what came before `born`, and everything beyond the bounds, oldest first.
    pub(super) fn forget(&mut self, born: u64) {
        self.equations.retain(|equation| equation.born >= born);
        while self.equations.len() > EQUATIONS_MAX || self.unknown_rows() > UNKNOWN_ROWS_MAX {
            self.equations.remove(0);
        }
    }

    fn unknown_rows(&self) -> usize {
        let terms: usize = self.equations.iter().map(|e| e.terms.len()).sum();
        if terms <= UNKNOWN_ROWS_MAX {
            return terms;
        }
        let all = self.equations.iter().flat_map(|e| &e.terms);
        let mut all: Vec<Unknown> = all.map(|term| term.0).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    }

    /// Takes an equation in; false when it says nothing new.
    pub(super) fn insert(&mut self, mut new: Equation) -> bool {
        for known in &self.equations {
            let factor = known.pivot.map_or(0, |pivot| new.factor_of(pivot));
            if factor != 0 {
                new.add(known, factor);
            }
        }
        new.normalise();
        let Some(pivot) = new.pivot else {
            return false;
        };
        for known in &mut self.equations {
            let factor = known.factor_of(pivot);
            if factor != 0 {
                known.add(&new, factor);
            }
        }
        self.equations.push(new);
        true
    }

    pub(super) fn mentions(&self, name: Name) -> bool {
        let mut terms = self.equations.iter().flat_map(|e| &e.terms);
        terms.any(|term| term.0.name == name)
    }

    /// A missing row has come after all. Its pivot, if it was one, passes on.
    pub(super) fn learn(&mut self, unknown: Unknown, row: &[u8]) {
        let mut orphans = Vec::new();
        let mut index = 0;
        while let Some(equation) = self.equations.get_mut(index) {
            equation.substitute(unknown, row);
            if equation.pivot == Some(unknown) || equation.terms.is_empty() {
                orphans.push(self.equations.remove(index));
            } else {
                index += 1;
            }
        }
        for orphan in orphans {
            self.insert(orphan);
        }
    }

    /// A datagram whose rows are all solved, cut from the system.
    pub(super) fn solved(&mut self) -> Option<(Name, Vec<u8>)> {
        let is_solved = |e: &Equation, unknown| e.terms.len() == 1 && e.pivot == Some(unknown);
        let whole = |name: Name| {
            (0..name.rows()).all(|row| {
                let unknown = Unknown { name, row };
                self.equations.iter().any(|e| is_solved(e, unknown))
            })
        };
        let singles = self.equations.iter().filter(|e| e.terms.len() == 1);
        let name = singles
            .filter_map(|e| e.pivot.map(|pivot| pivot.name))
            .find(|name| whole(*name))?;
        let mut datagram = Vec::with_capacity(name.datagram_bytes());
        for row in 0..name.rows() {
            let unknown = Unknown { name, row };
            let at = self.equations.iter().position(|e| is_solved(e, unknown))?;
            datagram.extend_from_slice(&self.equations.remove(at).sum);
        }
        datagram.truncate(name.datagram_bytes());
        Some((name, datagram))
    }
}
