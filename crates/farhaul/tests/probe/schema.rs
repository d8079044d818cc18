//! Published schemas, and whether a document fits one.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

pub(crate) fn schema_path(document: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    folder.join(format!("{document}.schema.json"))
}

pub(crate) fn schema(document: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(schema_path(document)).unwrap()).unwrap()
}

/// As much of JSON Schema as ours uses; any other word in it is an error.
pub(crate) fn fits(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), String> {
    let fail = |why: String| Err(format!("{at}: {why}: {value}"));
    let Some(words) = schema.as_object() else {
        // `true` allows everything.
        assert_eq!(schema, &Value::Bool(true), "{at}");
        return Ok(());
    };
    for (word, rule) in words {
        match word.as_str() {
            "$schema" | "title" | "description" | "format" | "$defs" | "default" => {}
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                fits(value, &root["$defs"][name], root, at)?;
            }
            "type" => {
                let one = || vec![rule.clone()];
                let any = rule.as_array().cloned().unwrap_or_else(one);
                if !any.iter().any(|name| is_a(value, name.as_str().unwrap())) {
                    return fail(format!("not of type {rule}"));
                }
            }
            "enum" if !rule.as_array().unwrap().contains(value) => {
                return fail(format!("none of {rule}"));
            }
            "const" if rule != value => return fail(format!("not {rule}")),
            "enum" | "const" => {}
            "anyOf" | "oneOf" => {
                let mut any = rule.as_array().unwrap().iter();
                if !any.any(|one| fits(value, one, root, at).is_ok()) {
                    return fail("fits no alternative".to_owned());
                }
            }
            "required" => {
                let missing = |name: &&Value| {
                    value.is_object() && value.get(name.as_str().unwrap()).is_none()
                };
                if let Some(name) = rule.as_array().unwrap().iter().find(missing) {
                    return fail(format!("{name} is missing"));
                }
            }
            "properties" => {
                for (name, property) in value.as_object().into_iter().flatten() {
                    let known = rule
                        .get(name)
                        .ok_or_else(|| format!("{at}.{name} is unknown"))?;
                    fits(property, known, root, &format!("{at}.{name}"))?;
                }
            }
            "additionalProperties" if rule == &Value::Bool(false) => {}
            "items" => {
                for (nth, item) in value.as_array().into_iter().flatten().enumerate() {
                    fits(item, rule, root, &format!("{at}[{nth}]"))?;
                }
            }
            "minimum" | "maximum" | "minItems" | "maxItems" => {
                if !holds(value, word, rule) {
                    return fail(format!("{word} {rule} does not hold"));
                }
            }
            other => {
                return Err(format!(
                    "{at}: the schema has `{other}`, which this test does not know"
                ));
            }
        }
    }
    Ok(())
}

fn holds(value: &Value, word: &str, rule: &Value) -> bool {
    let items = |items: &Vec<Value>| Some(items.len() as f64);
    let number = value.as_array().map_or(value.as_f64(), items);
    let limit = rule.as_f64().unwrap();
    let is_least = word.starts_with("min");
    number.is_none_or(|number| {
        if is_least {
            number >= limit
        } else {
            number <= limit
        }
    })
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
