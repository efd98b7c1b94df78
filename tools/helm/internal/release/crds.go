package release

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/operation"
)

// pollInterval is the interval at which an object is checked, for example a new CRD until the API server serves it.
const pollInterval = 100 * time.Millisecond

// applyCRDs applies the CRDs in the chart's crds/ directory. Helm would do so at the first install only, and would
// overwrite the CRDs of other releases under server-side apply. applyCRDs creates missing CRDs at every apply and
// replaces existing ones only if the policy requires it. beforeWrite runs before the first write.
func (r *Release) applyCRDs(spec ApplySpec, beforeWrite func() error) error {
	policy := spec.Options.GetCrds()
	if policy == toolv1.CrdPolicy_CRD_POLICY_SKIP || !spec.Chart.HasCRDs() {
		return nil
	}
	objects, err := crdObjects(spec)
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		return nil
	}
	if err := r.checkObjects(objects, objects); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(r.session.Config())
	if err != nil {
		return err
	}
	r.operation.Step(toolv1.StepKind_STEP_KIND_CRDS, fmt.Sprintf("checking %s in crds/", countObjects(len(objects))))
	changes := make([]crdChange, 0, len(objects))
	for _, object := range objects {
		resourceClient, err := r.resourceClient(client, object)
		if err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		change := crdChange{target: object, resource: resourceClient}
		if err := change.read(); err != nil {
			return err
		}
		changes = append(changes, change)
	}
	replace := policy == toolv1.CrdPolicy_CRD_POLICY_CREATE_REPLACE
	if !replace && !slices.ContainsFunc(changes, func(change crdChange) bool { return change.live == nil }) {
		return nil
	}
	if err := beforeWrite(); err != nil {
		return err
	}
	if !replace {
		return r.createCRDs(client, changes)
	}
	// Before the first one is replaced, all of them are checked.
	for i := range changes {
		if err := changes[i].check(spec.Options.GetReplaceUnsafeCrds(), r.client.reportLimits); err != nil {
			return err
		}
	}
	return r.replaceCRDs(client, changes)
}

// crdObjects returns the objects in the crds/ directory of the chart and of its enabled subcharts.
func crdObjects(spec ApplySpec) ([]*unstructured.Unstructured, error) {
	enabled, err := enabledChart(spec)
	if err != nil {
		return nil, err
	}
	return crdFiles(enabled)
}

// crdFiles returns the objects in the crds/ directory of a chart and of its subcharts.
func crdFiles(chart *helmchart.Chart) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, file := range chart.CRDObjects() {
		found, err := documents(file.File.Data)
		if err != nil {
			return nil, failure.Wrap(failure.InvalidPackage, err, "%s: %v", file.Filename, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// crdChange is an object of a package, usually a CRD, and what exists on the cluster.
type crdChange struct {
	target   *unstructured.Unstructured
	resource dynamic.ResourceInterface
	// live is nil if the object does not exist.
	live *unstructured.Unstructured
}

// read reads the existing object.
func (c *crdChange) read() error {
	live, err := c.resource.Get(context.Background(), c.target.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return c.wrap(err)
	}
	c.live = live
	return nil
}

// check checks that the existing object may be replaced.
func (c *crdChange) check(allowUnsafe bool, report func(string)) error {
	if !isCRD(c.target) {
		return nil
	}
	return checkReplaceable(c.live, c.target, allowUnsafe, report)
}

func (c *crdChange) wrap(err error) error {
	return fmt.Errorf("%s %s: %w", c.target.GetKind(), c.target.GetName(), err)
}

// createCRDs creates the objects that do not exist and waits until the API server serves their kinds.
func (r *Release) createCRDs(client dynamic.Interface, changes []crdChange) error {
	var created []*unstructured.Unstructured
	for _, change := range changes {
		if change.live != nil {
			continue
		}
		_, err := change.resource.Create(context.Background(), change.target, metav1.CreateOptions{FieldManager: FieldManager})
		switch {
		case apierrors.IsAlreadyExists(err):
		case err != nil:
			return change.wrap(err)
		default:
			created = append(created, change.target)
		}
	}
	return r.waitForCRDs(client, created)
}

// replaceCRDs creates or replaces the objects and waits until the API server serves their kinds with the new schemas.
func (r *Release) replaceCRDs(client dynamic.Interface, changes []crdChange) error {
	var changed []*unstructured.Unstructured
	for _, change := range changes {
		applied, err := change.resource.Apply(context.Background(), change.target.GetName(), change.target,
			metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
		if err != nil {
			return change.wrap(err)
		}
		if !change.isServed(applied) {
			changed = append(changed, applied)
		}
	}
	if err := r.waitForCRDs(client, changed); err != nil {
		return err
	}
	return r.waitForSchemas(changes, changed)
}

// schemaDelay is how long an API server may take to use the new schema of a CRD, which it does not report.
const schemaDelay = time.Second

// waitForSchemas waits if a CRD was replaced. The condition Established of a new CRD is enough.
func (r *Release) waitForSchemas(changes []crdChange, changed []*unstructured.Unstructured) error {
	replaced := slices.ContainsFunc(changes, func(change crdChange) bool {
		return change.live != nil && slices.ContainsFunc(changed, func(applied *unstructured.Unstructured) bool {
			return applied.GetName() == change.target.GetName() && applied.GetGeneration() != change.live.GetGeneration()
		})
	})
	if !replaced {
		return nil
	}
	select {
	case <-time.After(schemaDelay):
		return nil
	case <-r.operation.Context().Done():
		return r.operation.Context().Err()
	}
}

// isServed reports whether the API server serves the kinds of the CRD, because applying it changed nothing.
func (c crdChange) isServed(applied *unstructured.Unstructured) bool {
	return c.live != nil && c.live.GetResourceVersion() == applied.GetResourceVersion() && isConditionTrue(c.live, "Established")
}

// documents returns the objects in YAML documents, which must have names.
func documents(data []byte) ([]*unstructured.Unstructured, error) {
	objects, err := decodeDocuments(data)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if object.GetKind() == "" || object.GetName() == "" {
			return nil, errors.New("object has no kind or no name")
		}
	}
	return objects, nil
}

// decodeDocuments returns the objects in YAML documents. Documents without content are skipped.
func decodeDocuments(data []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func (r *Release) resourceClient(client dynamic.Interface, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	mapper, err := r.session.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	gvk := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return client.Resource(mapping.Resource), nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = r.namespace
	}
	return client.Resource(mapping.Resource).Namespace(namespace), nil
}

// waitForCRDs waits until the API server serves the kinds of the changed CRDs, so that the chart can use them.
func (r *Release) waitForCRDs(client dynamic.Interface, changed []*unstructured.Unstructured) error {
	var kinds []schema.GroupVersionKind
	for _, object := range changed {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		served, err := r.waitEstablished(client, object.GetName())
		if err != nil {
			return err
		}
		kinds = append(kinds, served...)
	}
	for len(kinds) > 0 {
		if err := r.session.Refresh(); err != nil {
			return err
		}
		for len(kinds) > 0 {
			if _, known := r.session.Namespaced(kinds[0]); !known {
				break
			}
			kinds = kinds[1:]
		}
		if len(kinds) > 0 {
			if err := r.waitToPoll("discovery of " + kinds[0].String()); err != nil {
				return err
			}
		}
	}
	return nil
}

var crdResource = schema.GroupVersionResource{
	Group: apiextensionsv1.GroupName, Version: "v1", Resource: "customresourcedefinitions",
}

// waitEstablished waits until a CRD is established and returns its served kinds.
func (r *Release) waitEstablished(client dynamic.Interface, name string) ([]schema.GroupVersionKind, error) {
	for {
		object, err := client.Resource(crdResource).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if isConditionTrue(object, "Established") {
			return servedKinds(object), nil
		}
		if err := r.waitToPoll("CustomResourceDefinition " + name); err != nil {
			return nil, err
		}
	}
}

func (r *Release) waitToPoll(object string) error {
	return waitToPoll(r.operation, "established", object)
}

// waitToPoll waits for pollInterval. It fails if the time for waits is over before the object is in the awaited state.
func waitToPoll(op *operation.Operation, awaited, object string) error {
	if op.Remaining() <= time.Millisecond {
		return &failure.WaitError{For: awaited, After: op.Timeout(), Err: errors.New(object)}
	}
	select {
	case <-time.After(pollInterval):
		return nil
	case <-op.Context().Done():
		return op.Context().Err()
	}
}

func isConditionTrue(object *unstructured.Unstructured, conditionType string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == conditionType {
			return fields["status"] == "True"
		}
	}
	return false
}

func servedKinds(object *unstructured.Unstructured) []schema.GroupVersionKind {
	group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions")
	var kinds []schema.GroupVersionKind
	for _, version := range versions {
		fields, ok := version.(map[string]any)
		if !ok || fields["served"] != true {
			continue
		}
		if name, ok := fields["name"].(string); ok {
			kinds = append(kinds, schema.GroupVersionKind{Group: group, Version: name, Kind: kind})
		}
	}
	return kinds
}
