//! Plans that say only in what they differ from another: `like = "FILE"`.

use serde::Deserialize;
use toml::{Table, Value};

use super::written::Written;
use super::{PlanError, ReadFile};

/// Plans that build on each other, at most.
const DEPTH_MAX: u32 = 4;

/// Reads a plan, with what it builds on.
pub(super) fn read(text: &str, read_file: &ReadFile<'_>) -> Result<Written, PlanError> {
    let wrong = |error: toml::de::Error| PlanError::Text(error.to_string());
    let table: Table = toml::from_str(text).map_err(wrong)?;
    if !table.contains_key("like") {
        // From the text, so that what is wrong is told with line and column.
        return toml::from_str(text).map_err(wrong);
    }
    let whole = inherited(table, read_file, DEPTH_MAX)?;
    Written::deserialize(Value::Table(whole)).map_err(wrong)
}

fn inherited(mut table: Table, read_file: &ReadFile<'_>, depth: u32) -> Result<Table, PlanError> {
    let name = match table.remove("like") {
        None => return Ok(table),
        Some(Value::String(name)) if depth > 0 => name,
        Some(Value::String(_)) => {
            let why = format!("more than {DEPTH_MAX} plans build on each other");
            return Err(PlanError::value("like", why));
        }
        Some(_) => return Err(PlanError::value("like", "must be the file of another plan")),
    };
    let text = read_file(&name).map_err(|why| PlanError::value("like", why))?;
    let base: Table = toml::from_str(&text)
        .map_err(|error| PlanError::value("like", format!("{name}: {error}")))?;
    let base = inherited(base, read_file, depth - 1)?;
    Ok(overlaid(base, table))
}

/// Tables are laid over each other key by key, everything else as a whole.
fn overlaid(mut base: Table, over: Table) -> Table {
    for (key, value) in over {
        let merged = match (base.remove(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => {
                Value::Table(overlaid(below, above))
            }
            (_, value) => value,
        };
        base.insert(key, merged);
    }
    base
}
