package release

import (
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/kube"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// replaceUnsafeAnnotation on a CRD of a package allows replacing the existing CRD although stored objects may be lost.
const replaceUnsafeAnnotation = "chandler.dev/replace-unsafe-crds"

// maxProblems is the number of problems of a CRD that a message lists.
const maxProblems = 5

var crdKind = schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}

func isCRD(object *unstructured.Unstructured) bool {
	return object.GroupVersionKind().GroupKind() == crdKind
}

// checkReplaceable fails if replacing the CRD on the cluster could lose objects or fields of them. live is nil if there is none.
// It reports values that the CRD no longer allows.
func checkReplaceable(live, target *unstructured.Unstructured, allowUnsafe bool, report func(string)) error {
	if live == nil || allowUnsafe || target.GetAnnotations()[replaceUnsafeAnnotation] == "true" {
		return nil
	}
	problems, limits := compareCRDs(live, target)
	if len(problems) > 0 {
		return failure.New(failure.Rejected,
			"CustomResourceDefinition %s cannot be replaced, because stored objects could be lost or become invalid: %s "+
				"(the annotation %s: \"true\" allows it)",
			target.GetName(), listProblems(problems), replaceUnsafeAnnotation)
	}
	if len(limits) > 0 && report != nil {
		report(fmt.Sprintf("CustomResourceDefinition %s allows fewer values than before: %s", target.GetName(), listProblems(limits)))
	}
	return nil
}

// listProblems returns the first problems of a CRD as text.
func listProblems(problems []string) string {
	more := ""
	if left := len(problems) - maxProblems; left > 0 {
		problems, more = problems[:maxProblems], fmt.Sprintf("; and %d more", left)
	}
	return strings.Join(problems, "; ") + more
}

// reportLimits reports values that a CRD no longer allows. That is no reason to refuse it: most upgrades of operators tighten
// some limit, and stored objects stay as they are.
func (c *client) reportLimits(message string) {
	c.operation.Log.Info("a CRD is replaced by one that allows fewer values", "detail", message)
	c.operation.Step(toolv1.StepKind_STEP_KIND_CRDS, message)
}

// compareCRDs returns why replacing a CRD could lose objects or fields of them, and which values it no longer allows.
func compareCRDs(live, target *unstructured.Unstructured) (problems, limits []string) {
	liveScope, _, _ := unstructured.NestedString(live.Object, "spec", "scope")
	if scope, _, _ := unstructured.NestedString(target.Object, "spec", "scope"); scope != liveScope {
		problems = append(problems, fmt.Sprintf("its scope changes from %s to %s", liveScope, scope))
	}
	before, after := crdVersions(live), crdVersions(target)
	stored := storedVersions(live, before)
	problems = append(problems, storedVersionProblems(stored, before, after)...)

	keepsAll := preservesUnknownFields(target)
	if preservesUnknownFields(live) && !keepsAll {
		problems = append(problems, "it no longer keeps fields that its schema does not have (preserveUnknownFields)")
	}
	for _, old := range before {
		next := findVersion(after, old.name)
		if next == nil || !old.served || !next.served {
			continue
		}
		compared := comparison{version: old.name, keepsUnknown: keepsAll}
		compared.compare("", old.schema, next.schema)
		problems = append(problems, compared.problems...)
		limits = append(limits, compared.limits...)
	}
	return problems, limits
}

// storedVersionProblems returns the stored versions that the API server could no longer read, or not serve in any version.
func storedVersionProblems(stored []string, before, after []crdVersion) []string {
	var problems []string
	isServed := func(version crdVersion) bool { return version.served }
	serves := slices.ContainsFunc(after, isServed) || !slices.ContainsFunc(before, isServed)
	for _, name := range stored {
		switch {
		case findVersion(after, name) == nil:
			problems = append(problems, fmt.Sprintf("objects may be stored in version %[1]s, which the new one does not have: "+
				"store them in another version, and then remove %[1]s from status.storedVersions of the CustomResourceDefinition", name))
		case !serves:
			problems = append(problems, fmt.Sprintf("objects may be stored in version %s, and no version is served any more", name))
		}
	}
	return problems
}

// crdVersion is a version of a CRD.
type crdVersion struct {
	name            string
	served, storage bool
	// schema is nil if the version has none, so that every object is valid.
	schema map[string]any
}

func crdVersions(crd *unstructured.Unstructured) []crdVersion {
	items, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var versions []crdVersion
	for _, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(fields, "name")
		served, _, _ := unstructured.NestedBool(fields, "served")
		storage, _, _ := unstructured.NestedBool(fields, "storage")
		root, _, _ := unstructured.NestedMap(fields, "schema", "openAPIV3Schema")
		versions = append(versions, crdVersion{name: name, served: served, storage: storage, schema: root})
	}
	return versions
}

func findVersion(versions []crdVersion, name string) *crdVersion {
	at := slices.IndexFunc(versions, func(version crdVersion) bool { return version.name == name })
	if at < 0 {
		return nil
	}
	return &versions[at]
}

// storedVersions returns the versions in which objects may be stored.
func storedVersions(live *unstructured.Unstructured, versions []crdVersion) []string {
	if stored, _, _ := unstructured.NestedStringSlice(live.Object, "status", "storedVersions"); len(stored) > 0 {
		return stored
	}
	var stored []string
	for _, version := range versions {
		if version.storage {
			stored = append(stored, version.name)
		}
	}
	return stored
}

func preservesUnknownFields(crd *unstructured.Unstructured) bool {
	preserves, _, _ := unstructured.NestedBool(crd.Object, "spec", "preserveUnknownFields")
	return preserves
}

// checkCRDs fails if one of the CRDs among the rendered objects must not replace that on the cluster.
func (c *client) checkCRDs(resources kube.ResourceList, allowUnsafe bool) error {
	for _, info := range resources {
		live, target, err := liveCRD(info)
		if err != nil {
			return err
		}
		if err := checkReplaceable(live, target, allowUnsafe, c.reportLimits); err != nil {
			return err
		}
	}
	return nil
}

// liveCRD returns the CRD on the cluster and the rendered one. Both are nil if the object is not a CRD, and the first one if
// it does not exist on the cluster.
func liveCRD(info *resource.Info) (live, target *unstructured.Unstructured, err error) {
	target, ok := info.Object.(*unstructured.Unstructured)
	if !ok || !isCRD(target) {
		return nil, nil, nil
	}
	found, err := newHelper(info).Get(info.Namespace, info.Name)
	if apierrors.IsNotFound(err) {
		return nil, target, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("CustomResourceDefinition %s: %w", info.Name, err)
	}
	live, ok = found.(*unstructured.Unstructured)
	if !ok {
		return nil, nil, fmt.Errorf("CustomResourceDefinition %s was read as %T", info.Name, found)
	}
	return live, target, nil
}
