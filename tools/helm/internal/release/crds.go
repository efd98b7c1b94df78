package release

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

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
// replaces existing ones only if the policy requires it.
func (r *Release) applyCRDs(spec ApplySpec) error {
	policy := spec.Options.GetCrds()
	if policy == toolv1.CrdPolicy_CRD_POLICY_SKIP || !spec.Chart.HasCRDs() {
		return nil
	}
	enabled, err := enabledChart(spec)
	if err != nil {
		return err
	}
	var objects []*unstructured.Unstructured
	for _, file := range enabled.CRDObjects() {
		found, err := documents(file.File.Data)
		if err != nil {
			return failure.Wrap(failure.InvalidPackage, err, "%s: %v", file.Filename, err)
		}
		objects = append(objects, found...)
	}
	if len(objects) == 0 {
		return nil
	}
	client, err := dynamic.NewForConfig(r.session.Config())
	if err != nil {
		return err
	}
	r.operation.Step(toolv1.StepKind_STEP_KIND_CRDS, fmt.Sprintf("checking %s in crds/", countObjects(len(objects))))
	var changed []*unstructured.Unstructured
	for _, object := range objects {
		applied, err := r.applyCRD(client, object, policy == toolv1.CrdPolicy_CRD_POLICY_CREATE_REPLACE)
		if err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if applied {
			changed = append(changed, object)
		}
	}
	return r.waitForCRDs(client, changed)
}

func documents(data []byte) ([]*unstructured.Unstructured, error) {
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
		if len(object.Object) == 0 {
			continue
		}
		if object.GetKind() == "" || object.GetName() == "" {
			return nil, errors.New("object has no kind or no name")
		}
		objects = append(objects, object)
	}
}

// applyCRD creates or replaces one object. It reports whether it created or replaced it.
func (r *Release) applyCRD(client dynamic.Interface, object *unstructured.Unstructured, replace bool) (bool, error) {
	resourceClient, err := r.resourceClient(client, object)
	if err != nil {
		return false, err
	}
	ctx := context.Background()
	if replace {
		_, err := resourceClient.Apply(ctx, object.GetName(), object,
			metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
		return err == nil, err
	}
	if _, err := resourceClient.Get(ctx, object.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return false, err
	}
	_, err = resourceClient.Create(ctx, object, metav1.CreateOptions{FieldManager: FieldManager})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
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
