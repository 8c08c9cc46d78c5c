//! From a declaration's text to an [`Implementation`], with everything that is wrong in one pass.

use std::collections::BTreeSet;

use crate::{
    catalogue::Catalogue,
    diagnostic::{Diagnostic, Position},
    implementation::{Hook, Implementation},
    scenario::{
        Manifest, Vars,
        de::{self, Fault},
        raw::{Kind, Node},
        replace,
    },
    words::{did_you_mean, nearest},
};

impl Implementation {
    /// Reads a declaration. With a catalogue, exemptions must name scenarios that are in it.
    pub fn parse(file: &str, text: &str, catalogue: Option<&Catalogue>) -> Result<Self, Vec<Diagnostic>> {
        let root = Node::parse(file, text).map_err(|diagnostic| vec![diagnostic])?;
        let mut faults = BTreeSet::new();
        let mut add = |at: Position, message: String| {
            faults.insert(Diagnostic::new(file, text, at, message));
        };
        exemptions(&root, catalogue, &mut add);
        hooks(&root, &mut add);
        objects(&root, &mut add);
        pools(&root, &mut add);
        match de::read::<Self>(&root) {
            Ok(implementation) if faults.is_empty() => return Ok(implementation),
            Ok(_) => {}
            Err(Fault { at, message }) => {
                faults.insert(Diagnostic::new(file, text, at.unwrap_or(root.at), message));
            }
        }
        Err(faults.into_iter().collect())
    }
}

fn items<'a>(node: &'a Node, key: &str) -> &'a [Node] {
    node.get(key).map_or(&[], Node::items)
}

fn exemptions(root: &Node, catalogue: Option<&Catalogue>, add: &mut impl FnMut(Position, String)) {
    for exemption in items(root, "exemptions") {
        for key in ["reason", "link"] {
            if let Some(Node { kind: Kind::Text(text), at }) = exemption.get(key)
                && text.trim().is_empty()
            {
                add(*at, format!("an exemption needs a {key}"));
            }
        }
        if let Some(catalogue) = catalogue
            && let Some(Node { kind: Kind::Text(id), at }) = exemption.get("scenario")
            && !catalogue.scenarios().iter().any(|scenario| scenario.id == *id)
        {
            let ids = catalogue.scenarios().iter().map(|scenario| &*scenario.id);
            add(*at, format!("there is no scenario `{id}`{}", did_you_mean(nearest(id, ids))));
        }
    }
}

fn hooks(root: &Node, add: &mut impl FnMut(Position, String)) {
    let Some(Node { kind: Kind::Map(entries), .. }) = root.get("hooks") else { return };
    for (key, command) in entries {
        let known = de::read::<Hook>(&Node { kind: Kind::Text(key.text.clone()), at: key.at }).is_ok();
        if known && matches!(&command.kind, Kind::List(words) if words.is_empty()) {
            add(command.at, "a hook is a program and its arguments".to_owned());
        }
    }
}

fn objects(root: &Node, add: &mut impl FnMut(Position, String)) {
    for object in items(root, "objects") {
        if let Err(Fault { at, message }) = de::read::<Manifest>(object) {
            add(at.unwrap_or(object.at), message);
        }
    }
}

fn pools(root: &Node, add: &mut impl FnMut(Position, String)) {
    let vars = Vars::for_pool("${run}", "${pool}");
    for pool in items(root, "pools") {
        for node in items(pool, "create") {
            if let Err((at, error)) = replace(node, &vars) {
                add(at, format!("{error}; a pool has `${{pool}}` and `${{run}}`"));
            }
            match de::read::<Manifest>(node) {
                Ok(Manifest { target, .. }) => {
                    if !target.name.contains("${pool}") && !target.name.contains("${run}") {
                        let at = node.get("metadata").and_then(|metadata| metadata.get("name"));
                        add(
                            at.map_or(node.at, |name| name.at),
                            "every pool is made anew: the name must contain `${pool}` or `${run}`".to_owned(),
                        );
                    }
                }
                Err(Fault { at, message }) => add(at.unwrap_or(node.at), message),
            }
        }
        let mut names = BTreeSet::new();
        for slot in items(pool, "slots") {
            if let Some(Node { kind: Kind::Text(name), at }) = slot.get("name")
                && !names.insert(name)
            {
                add(*at, format!("the slot `{name}` is here twice"));
            }
        }
    }
}
