use super::*;

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n";
const SLICE: &str =
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: shop}\n";
const DEPLOYMENT: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";

fn objects(text: &str) -> Vec<String> {
    let parsed = parse(text, "web.yaml").unwrap_or_else(|errors| panic!("{errors:?} in\n{text}"));
    let line = |found: &Definition| format!("{} at {}", found.reference, found.origin);
    parsed.definitions.iter().map(line).collect()
}

fn warnings(text: &str) -> Vec<String> {
    let parsed = parse(text, "web.yaml").unwrap_or_else(|errors| panic!("{errors:?} in\n{text}"));
    parsed.warnings.iter().map(|warning| format!("{}: {}", warning.object, warning.message)).collect()
}

fn errors(text: &str) -> Vec<String> {
    let errors =
        parse(text, "web.yaml").map(|parsed| panic!("{parsed:?} in\n{text}")).unwrap_or_else(|errors| errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn every_document_of_a_file_is_read_and_numbered() {
    let service = "Service default/web at web.yaml document";
    let slice = "EndpointSlice shop/web-1 at web.yaml document";
    let rows: &[(String, Vec<String>)] = &[
        (String::new(), vec![]),
        ("# nothing\n".into(), vec![]),
        ("---\n---\n...\n".into(), vec![]),
        (SERVICE.into(), vec![format!("{service} 1")]),
        (SERVICE.replace('\n', "\r\n"), vec![format!("{service} 1")]),
        (format!("\u{feff}{SERVICE}"), vec![format!("{service} 1")]),
        (format!("{SERVICE}---\n{SLICE}"), vec![format!("{service} 1"), format!("{slice} 2")]),
        (
            format!("# a file\n\n---\n{SERVICE}--- # next\n{SLICE}...\n"),
            vec![format!("{service} 1"), format!("{slice} 2")],
        ),
        (format!("%YAML 1.2\n---\n{SERVICE}"), vec![format!("{service} 1")]),
        (
            format!("{SERVICE}---\n# nothing here\n---\n{SLICE}"),
            vec![format!("{service} 1"), format!("{slice} 3")],
        ),
        (
            format!("--- {{apiVersion: v1, kind: Service, metadata: {{name: web}}}}\n---\n{SLICE}"),
            vec![format!("{service} 1"), format!("{slice} 2")],
        ),
        (format!("{SERVICE}x: |\n  ---\n"), vec![format!("{service} 1")]),
    ];
    for (text, want) in rows {
        assert_eq!(&objects(text), want, "{text:?}");
    }
}

#[test]
fn json_is_read_as_well_and_may_stand_between_yaml_documents() {
    let json = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}"#;
    let service = "Service default/web at web.yaml document";
    let both = [format!("{service} 1"), format!("{service} 2")];
    assert_eq!(objects(json), both[..1]);
    assert_eq!(objects(&format!("{json}\n{json}")), both);
    assert_eq!(objects(&format!("---\n{json}\n---\n{SERVICE}")), both);
    let broken = format!("{SERVICE}---\n{json}\n{{\"kind\": \"Service\",\n}}\n");
    assert_eq!(errors(&broken), ["web.yaml document 3: trailing comma at line 7, column 1"]);
}

#[test]
fn lists_are_taken_apart() {
    let item = |fields: &str| format!("- {{{fields} metadata: {{name: web}}}}\n");
    let typed = item("apiVersion: v1, kind: Service,");
    let bare = item("");
    let slice = item("apiVersion: discovery.k8s.io/v1, kind: EndpointSlice,");
    let rows = [
        (format!("apiVersion: v1\nkind: List\nitems:\n{typed}{slice}"), vec!["Service", "EndpointSlice"]),
        (format!("apiVersion: v1\nkind: ServiceList\nitems:\n{bare}{typed}"), vec!["Service", "Service"]),
        (
            format!("apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems:\n{bare}"),
            vec!["EndpointSlice"],
        ),
        (format!("apiVersion: v1\nkind: EndpointsList\nitems:\n{bare}"), vec!["Endpoints"]),
        ("apiVersion: v1\nkind: List\nitems: []\n".into(), vec![]),
        ("apiVersion: v1\nkind: ServiceList\nitems:\n".into(), vec![]),
    ];
    for (text, kinds) in rows {
        let want = kinds
            .iter()
            .enumerate()
            .map(|(i, kind)| format!("{kind} default/web at web.yaml document 1 item {}", i + 1));
        assert_eq!(objects(&text), want.collect::<Vec<_>>(), "{text}");
    }
}

#[test]
fn yaml_anchors_and_merges_are_resolved() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- &web\n  apiVersion: v1\n  kind: Service\n  metadata: {name: web}\n\
                - <<: *web\n  metadata: {name: web2}\n";
    let service = |name: &str, item| format!("Service default/{name} at web.yaml document 1 item {item}");
    assert_eq!(objects(text), [service("web", 1), service("web2", 2)]);
}

#[test]
fn other_kinds_are_skipped_with_a_warning() {
    let known = "readylb reads Service, Endpoints and Node (v1) and EndpointSlice (discovery.k8s.io/v1)";
    let rows = [
        (
            DEPLOYMENT.to_owned(),
            format!("Deployment web: Deployment (apps/v1) is not used; {known} (web.yaml document 1)"),
        ),
        (
            SERVICE.replace("v1", "serving.knative.dev/v1"),
            format!(
                "Service web: Service (serving.knative.dev/v1) is not used; {known} (web.yaml document 1)"
            ),
        ),
        (
            SLICE.replace("/v1", "/v1beta1"),
            format!(
                "EndpointSlice shop/web-1: EndpointSlice (discovery.k8s.io/v1beta1) is not used; {known} (web.yaml document 1)"
            ),
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web-7d4b9, namespace: shop}\n".into(),
            "Pod shop/web-7d4b9: a Pod is not used by this build yet (web.yaml document 1)".into(),
        ),
        (
            "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: web-7d4b9}\n".into(),
            "Pod web-7d4b9: a Pod is not used by this build yet (web.yaml document 1 item 1)".into(),
        ),
    ];
    for (text, want) in rows {
        assert_eq!(warnings(&text), [want], "{text}");
        assert_eq!(objects(&text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn fields_that_the_api_does_not_have_are_named() {
    let text =
        format!("{SERVICE}spec:\n  ports:\n  - {{port: 80, targetport: 8080}}\n  selectors: {{app: web}}\n");
    let want = ["spec.ports[0].targetport", "spec.selectors"].map(|field| {
        format!("Service default/web: {field} in web.yaml document 1 is not known and is ignored")
    });
    assert_eq!(warnings(&text), want);
}

#[test]
fn a_broken_document_is_named_by_file_number_object_and_cause() {
    let broken_slice = format!("{SLICE}endpoints:\n- addresses: 10.244.1.21\n");
    let half_written = "apiVersion: v1\nkind: Service\nmetadata:\n  labels:\n    name: wrong\n  namespace: shop\n  name: web\nspec:\n  ports: [{port: 80\n";
    let rows = [
        (
            format!("{SERVICE}---\n{broken_slice}"),
            "web.yaml document 2, EndpointSlice shop/web-1: endpoints[0].addresses: invalid type: string \"10.244.1.21\", \
             expected a sequence",
        ),
        (
            format!("{SERVICE}spec: {{ports: [{{port: http}}]}}\n"),
            "web.yaml document 1, Service default/web: spec.ports[0].port: invalid type: string \"http\", expected i32",
        ),
        (
            format!("{SERVICE}---\n{half_written}"),
            "web.yaml document 2, Service shop/web: unclosed bracket '{' at line 13, column 11",
        ),
        (
            format!("{SERVICE}kind: Pod\n"),
            "web.yaml document 1: duplicate mapping key `kind` is not allowed here at line 4, column 1",
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service}\n".into(),
            "web.yaml document 1 item 1: metadata.name of the Service is missing",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: 7\n".into(),
            "web.yaml document 1: items of the List is no list",
        ),
        (
            "hello\n".into(),
            "web.yaml document 1: this is no Kubernetes object, which has an apiVersion and a kind",
        ),
        (
            "kind: Service\n".into(),
            "web.yaml document 1: this is no Kubernetes object, which has an apiVersion and a kind",
        ),
    ];
    for (text, want) in rows {
        assert_eq!(errors(&text), [want], "{text}");
    }
}

#[test]
fn one_broken_document_does_not_hide_another() {
    let text = format!("{{{{ .Values.web }}}}\n---\n{SERVICE}---\na: [\n");
    let want = [
        "web.yaml document 1: key must be a string at line 1, column 2",
        "web.yaml document 3: unclosed bracket '[' at line 7, column 4",
    ];
    assert_eq!(errors(&text), want);
}

#[test]
fn aliases_cannot_make_a_small_file_large() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..9 {
        let below = format!("*a{},", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let [error] = &errors(&bomb)[..] else { panic!("no single error") };
    assert!(error.starts_with("web.yaml document 1: YAML document too large or too complex"), "{error}");
}

#[test]
fn a_large_list_is_no_reason_to_refuse() {
    let item = "- {apiVersion: v1, kind: Service, metadata: {name: web, labels: {a: b, c: d, e: f}}}\n";
    let text = format!("apiVersion: v1\nkind: List\nitems:\n{}", item.repeat(20_000));
    assert_eq!(objects(&text).len(), 20_000);
}
