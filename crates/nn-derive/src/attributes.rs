//! Parses `#[module(..)]` on a type and on a field.

use syn::{Attribute, LitStr, Path};

/// The path in `#[module(crate = "path")]` on the type.
pub(crate) fn crate_path(attributes: &[Attribute]) -> syn::Result<Option<Path>> {
    let mut path = None;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error(
                    "a type takes #[module(crate = \"path\")] only; `skip`, `constant` and `rename` belong to fields",
                ));
            }
            if path.is_some() {
                return Err(meta.error("`crate` is given twice"));
            }
            path = Some(meta.value()?.parse::<LitStr>()?.parse_with(Path::parse_mod_style)?);
            Ok(())
        })?;
    }
    Ok(path)
}

/// The attributes of one field.
#[derive(Default)]
pub(crate) struct FieldAttributes {
    /// `#[module(skip)]`.
    pub(crate) skip: bool,
    /// `#[module(constant)]`.
    pub(crate) constant: bool,
    /// `#[module(rename = "name")]`.
    pub(crate) rename: Option<LitStr>,
}

impl FieldAttributes {
    pub(crate) fn parse(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("module")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("skip") {
                    found.skip = true;
                } else if meta.path.is_ident("constant") {
                    found.constant = true;
                } else if meta.path.is_ident("rename") {
                    if found.rename.is_some() {
                        return Err(meta.error("`rename` is given twice"));
                    }
                    let name: LitStr = meta.value()?.parse()?;
                    check_name(&name)?;
                    found.rename = Some(name);
                } else {
                    return Err(meta.error(
                        "a field takes #[module(skip)], #[module(constant)] or #[module(rename = \"name\")]",
                    ));
                }
                if found.skip && found.rename.is_some() {
                    return Err(
                        meta.error("a skipped field has no name to change: `skip` or `rename`, not both")
                    );
                }
                if found.skip && found.constant {
                    return Err(meta.error("a skipped field holds nothing: `skip` or `constant`, not both"));
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}

/// Refuses a dot, which would make one step of a path look like two.
fn check_name(name: &LitStr) -> syn::Result<()> {
    let text = name.value();
    if text.is_empty() || text.contains('.') {
        return Err(syn::Error::new(
            name.span(),
            format!(
                "a field's name is one step of a path such as fc1.weight: \"{text}\" is empty or has a dot"
            ),
        ));
    }
    Ok(())
}
