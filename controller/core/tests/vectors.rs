//! The sizing vectors of the requirement catalogue, by their ids: rows that hold for every implementation, and the rows that differ between
//! implementations in Karpenter's dialect.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod world;

use buffer_api::{
    CapacityBufferSpec,
    capacity_buffer::{LocalObjectRef, ScalableRef},
    conditions::buffer as text,
};
use buffer_core::{
    plan::plan,
    snapshot::{Buffer, PodShape, Snapshot},
};
use jiff::Timestamp;
use rstest::rstest;
use similar_asserts::assert_eq;
use world::{ON, api, deployment, key, shape, template};

/// What a row refers to: a PodTemplate, or a Deployment of so many replicas.
enum Ref {
    Template,
    Deployment(i32),
}
use Ref::{Deployment, Template};

fn cpu(amount: &str) -> PodShape {
    shape(&[("cpu", amount)])
}

/// Size, status of `ReadyForProvisioning` and of `Provisioning` that a buffer gets.
fn sized(
    reference: &Ref,
    replicas: Option<i32>,
    percentage: Option<i32>,
    limits: Option<&[(&str, &str)]>,
    chunk: PodShape,
) -> (Option<i32>, String, String) {
    let mut spec =
        CapacityBufferSpec { replicas, percentage, limits: limits.map(api), ..CapacityBufferSpec::default() };
    let mut snapshot = Snapshot::default();
    match reference {
        Ref::Template => {
            spec.pod_template_ref = Some(LocalObjectRef { name: "chunk".to_owned() });
            snapshot.templates.push(template("chunk", chunk));
        }
        Ref::Deployment(size) => {
            spec.scalable_ref = Some(ScalableRef {
                api_group: Some("apps".to_owned()),
                kind: "Deployment".to_owned(),
                name: "app".to_owned(),
            });
            snapshot.workloads.push(deployment("app", *size, chunk));
        }
    }
    snapshot.buffers.push(Buffer { key: key("web"), generation: 1, spec, ..Buffer::default() });
    let plan = plan(&snapshot, ON, Timestamp::UNIX_EPOCH);
    let status = plan.buffers[0].status.clone();
    let of = |kind: &str| {
        let condition = status.conditions.iter().find(|condition| condition.type_ == kind).unwrap();
        format!("{}/{}", condition.status, condition.reason)
    };
    (status.replicas, of(text::READY_FOR_PROVISIONING), of(text::PROVISIONING))
}

type Limits<'a> = Option<&'a [(&'a str, &'a str)]>;

#[rstest]
#[case::v1(Template, Some(5), None, None, cpu("1"), 5)]
#[case::v2(Template, Some(0), None, None, cpu("1"), 0)]
#[case::v3(Template, Some(10), None, Some(&[("cpu", "3")][..]), cpu("1"), 3)]
#[case::v4(Template, Some(3), None, Some(&[("cpu", "10")][..]), cpu("1"), 3)]
#[case::v5(Template, None, None, Some(&[("cpu", "5")][..]), cpu("1"), 5)]
#[case::v6(Template, None, None, Some(&[("cpu", "20"), ("memory", "40Gi")][..]), shape(&[("cpu", "2"), ("memory", "4Gi")]), 10)]
#[case::v7(Template, None, None, Some(&[("cpu", "8"), ("memory", "4Gi")][..]), shape(&[("cpu", "1"), ("memory", "1Gi")]), 4)]
#[case::v9(Template, None, None, Some(&[("cpu", "1")][..]), cpu("2"), 0)]
#[case::v10(Template, Some(5), None, Some(&[("cpu", "0")][..]), cpu("1"), 0)]
#[case::v11(Template, None, None, Some(&[("cpu", "1")][..]), cpu("250m"), 4)]
#[case::v13(Template, None, Some(50), Some(&[("cpu", "4")][..]), cpu("1"), 4)]
// The effective request of a main container of 1 and an init container of 4 is 4.
#[case::v14(Template, None, None, Some(&[("cpu", "8")][..]), cpu("4"), 2)]
#[case::v16_karpenter(Template, Some(3), None, Some(&[("nvidia.com/gpu", "1")][..]), cpu("1"), 3)]
#[case::v17_karpenter(Template, None, None, Some(&[("nvidia.com/gpu", "1")][..]), cpu("1"), 0)]
#[case::v18_karpenter(Template, Some(3), None, Some(&[][..]), cpu("1"), 3)]
#[case::v19_karpenter(Template, Some(3), None, Some(&[("cpu", "4")][..]), shape(&[]), 3)]
#[case::v20(Deployment(10), None, Some(20), None, cpu("1"), 2)]
#[case::v21(Deployment(10), None, Some(33), None, cpu("1"), 4)]
#[case::v23(Deployment(3), None, Some(10), None, cpu("1"), 1)]
#[case::v25(Deployment(10), None, Some(200), None, cpu("1"), 20)]
#[case::v26(Deployment(10), None, Some(0), None, cpu("1"), 0)]
#[case::v27(Deployment(0), None, Some(50), None, cpu("1"), 0)]
#[case::v28(Deployment(10), Some(5), Some(20), None, cpu("1"), 5)]
#[case::v29(Deployment(10), Some(5), Some(80), None, cpu("1"), 8)]
#[case::v31(Deployment(10), Some(5), Some(0), None, cpu("1"), 5)]
#[case::v33(Deployment(10), Some(5), Some(80), Some(&[("cpu", "4")][..]), cpu("1"), 4)]
#[case::v35(Deployment(10), None, None, Some(&[("cpu", "4")][..]), cpu("1"), 4)]
#[case::v36(Deployment(10), Some(2), None, None, cpu("1"), 2)]
#[case::v37(Deployment(0), None, Some(50), Some(&[("cpu", "4")][..]), cpu("1"), 0)]
#[case::v39_karpenter(Deployment(10), None, None, None, cpu("1"), 0)]
#[case::v40_karpenter(Deployment(10), None, Some(20), Some(&[("nvidia.com/gpu", "1")][..]), cpu("1"), 2)]
#[case::v42(Template, Some(i32::MAX), None, None, cpu("1"), i32::MAX)]
// Beyond the table: amounts that a careless implementation turns into a negative or an endless size.
#[case::negative_limit(Template, Some(2), None, Some(&[("cpu", "-1")][..]), cpu("1"), 0)]
#[case::negative_limit_alone(Template, None, None, Some(&[("cpu", "-1")][..]), cpu("1"), 0)]
#[case::greatest_percentage(Deployment(i32::MAX), None, Some(i32::MAX), None, cpu("1"), i32::MAX)]
#[case::greatest_limit(Template, None, None, Some(&[("cpu", "9E")][..]), cpu("1n"), i32::MAX)]
#[case::pods_are_no_request(Template, Some(3), None, Some(&[("pods", "1")][..]), cpu("1"), 3)]
fn size(
    #[case] reference: Ref,
    #[case] replicas: Option<i32>,
    #[case] percentage: Option<i32>,
    #[case] limits: Limits<'_>,
    #[case] chunk: PodShape,
    #[case] want: i32,
) {
    let (size, ready, provisioning) = sized(&reference, replicas, percentage, limits, chunk);
    assert_eq!((size, ready.as_str()), (Some(want), "True/Resolved"));
    let want = if want == 0 { "False/BufferEmpty" } else { "False/RequiresNewCapacity" };
    assert_eq!(provisioning, want);
}

#[test]
fn a_limit_that_is_no_quantity_is_an_error() {
    let (size, ready, provisioning) = sized(&Template, Some(1), None, Some(&[("cpu", "much")]), cpu("1"));
    assert_eq!(size, None);
    assert_eq!(ready, "False/ResolutionFailed");
    assert_eq!(provisioning, "False/NotReadyForProvisioning");
}
