//! Who is judged by which row, and whether a judgement can fail at all.

use conformance_report::model::Level;
use kube::core::cel::cel::Program;

use crate::{
    implementation::Dialect,
    rows::{Class, Row},
    scenario::{
        count::{Count, NodeCount},
        lift::{Bound, Faults},
        lint::{body, in_case, place},
        model::{Isolation, Scenario},
        raw::Node,
        step::{JudgeKeys, Step},
    },
    waits::Wait,
    words::{did_you_mean, nearest},
};

pub(super) fn check(
    scenario: &Scenario,
    root: &Node,
    bound: &[Vec<Bound<'_>>],
    complete: bool,
    faults: &mut Faults<'_>,
) {
    let mut judged = false;
    for step in bound.iter().flatten() {
        let keys = step.step.judge();
        if let Some(requirement) = keys.req {
            judged |= keys.dialect.is_none() && keys.feature.is_none();
            if scenario.level != Level::Provisional
                && let Some(problem) = row_problem(scenario, requirement.0, keys)
            {
                faults.add(place(body(step), &["req"]), in_case(step, problem));
            }
        }
        wait(step, keys, faults);
        content(step, faults);
    }
    if complete && !judged && scenario.level != Level::Provisional {
        faults.add(
            root.get("spec").map_or(root.at, |spec| spec.key_at("steps")),
            "no step with a `req` is for everybody who runs it: the scenario could not fail",
        );
    }
}

fn row_problem(scenario: &Scenario, row: &Row, keys: JudgeKeys) -> Option<String> {
    let id = row.id;
    if keys.dialect.is_some() {
        let nobody = row.classes.iter().all(|class| matches!(class, Class::Info | Class::Harness));
        return nobody.then(|| format!("row {id} is only recorded, never judged"));
    }
    let may = |class: &Class| match class {
        Class::Core => true,
        Class::Extended(feature) => scenario.features.contains(feature) || keys.feature == Some(*feature),
        Class::Harness => scenario.needs.isolation == Isolation::Own,
        Class::Dialect | Class::Info => false,
    };
    if row.classes.iter().any(may) {
        return None;
    }
    let feature = row.classes.iter().find_map(|class| match class {
        Class::Extended(feature) => Some(*feature),
        _ => None,
    });
    Some(match feature {
        Some(feature) => format!(
            "row {id} judges only those who claim `{feature}`: name it in `features`, or here as `feature: {feature}`"
        ),
        None if row.has(Class::Dialect) => {
            format!("row {id} is about the words of one implementation: add `dialect`")
        }
        None if row.has(Class::Harness) => {
            format!("row {id} is about how a subject is set up: it needs `isolation: own`")
        }
        None => format!("row {id} is only recorded, never judged"),
    })
}

fn wait(step: &Bound<'_>, keys: JudgeKeys, faults: &mut Faults<'_>) {
    let Some(wait) = keys.within else { return };
    let lengths =
        || Wait::all().filter(|wait| wait.is_length()).map(Wait::name).collect::<Vec<_>>().join(" or ");
    match (&step.step, wait.is_length()) {
        (Step::Hold(_), false) => {
            let message = format!("`{wait}` is how long is waited, not how long is held: {}", lengths());
            faults.add(place(body(step), &["for"]), in_case(step, message));
        }
        (Step::Hold(_), true) | (_, false) => {}
        (_, true) => {
            let message = format!("`{wait}` is how long is held, not how long is waited");
            faults.add(place(body(step), &["within"]), in_case(step, message));
        }
    }
}

/// What can't fail, and what can't be evaluated.
fn content(step: &Bound<'_>, faults: &mut Faults<'_>) {
    let node = body(step);
    match &step.step {
        Step::Assert(assert) => cel(step, &assert.cel, faults),
        Step::Hold(hold) => {
            cel(step, &hold.cel, faults);
            if hold.headroom.as_ref().is_some_and(|headroom| headroom.at_least == Some(0)) {
                faults.add(place(node, &["headroom", "atLeast"]), in_case(step, "0 is always there"));
            }
        }
        Step::Headroom(headroom) if headroom.at_least == Some(0) => {
            faults.add(place(node, &["atLeast"]), in_case(step, "0 is always there"));
        }
        Step::Probe(probe) if probe.count == Some(0) => {
            faults.add(place(node, &["count"]), in_case(step, "no pods prove nothing"));
        }
        Step::Claims(count) => {
            if count.dialect != Some(Dialect::Karpenter) {
                faults.add(node.at, in_case(step, "only Karpenter has claims: add `dialect: karpenter`"));
            }
            counts(step, count, faults);
        }
        Step::Nodes(count) => counts(step, count, faults),
        _ => {}
    }
}

fn counts(step: &Bound<'_>, count: &NodeCount, faults: &mut Faults<'_>) {
    if count.at_least == Some(Count::Exactly(0)) {
        faults.add(place(body(step), &["atLeast"]), in_case(step, "0 is always there"));
    }
}

fn cel(step: &Bound<'_>, expressions: &[String], faults: &mut Faults<'_>) {
    for (index, expression) in expressions.iter().enumerate() {
        let at = body(step)
            .get("cel")
            .and_then(|list| list.items().get(index))
            .map_or(step.node.at, |item| item.at);
        if let Some(problem) = cel_problem(expression) {
            faults.add(at, in_case(step, problem));
        }
    }
}

fn cel_problem(expression: &str) -> Option<String> {
    let program = match Program::compile(expression) {
        Ok(program) => program,
        Err(errors) => {
            let all = errors.to_string();
            let first = errors.errors.first().map_or(all.as_str(), |error| error.msg.as_str());
            // the parser lists every token that it would have taken
            let first = first.split_once(" expecting ").map_or(first, |(found, _)| found);
            return Some(format!("not a CEL expression: {first}"));
        }
    };
    let references = program.references();
    if references.has_variable("self") {
        return None;
    }
    let word = references.variables().into_iter().next().unwrap_or_default();
    let hint = did_you_mean(nearest(word, ["self"]));
    Some(format!("an expression looks at the object, which is `self`{hint}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("self.status.replicas == 3", None)]
    #[case("self.status.conditions.exists(c, c.type == 'Ready')", None)]
    #[case(
        "slef.status.replicas == 3",
        Some("an expression looks at the object, which is `self`, did you mean `self`?")
    )]
    #[case("true", Some("an expression looks at the object, which is `self`"))]
    fn cel_expressions(#[case] expression: &str, #[case] problem: Option<&str>) {
        assert_eq!(cel_problem(expression).as_deref(), problem);
    }

    #[test]
    fn what_is_not_cel_says_why() {
        assert!(cel_problem("self.status.replicas ==").unwrap().starts_with("not a CEL expression: "));
    }
}
