package release

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// objectRules are what the objects of a release may be. Every rule must allow an object. No rules allow everything.
type objectRules []*toolv1.ObjectRule

// checkedObject is what rules depend on.
type checkedObject struct {
	kind      schema.GroupKind
	name      string
	namespace string
	// namespaced is false if the scope of the kind is unknown.
	namespaced bool
	// record is set for records of releases.
	record bool
}

// String returns kind, namespace and name.
func (o checkedObject) String() string {
	if o.namespaced {
		return fmt.Sprintf("%s %s/%s", o.kind.Kind, o.namespace, o.name)
	}
	return o.kind.Kind + " " + o.name
}

// check returns an error that names the rule and its field if a rule does not allow the object.
func (rules objectRules) check(object checkedObject) error {
	for _, rule := range rules {
		if why := violation(rule, object); why != "" {
			return failure.New(failure.NotAllowed, "%s does not allow %s: %s", rule.GetName(), object, why)
		}
	}
	return nil
}

// checkNamespace checks the namespace of a release.
func (rules objectRules) checkNamespace(namespace string) error {
	for _, rule := range rules {
		if !allowsNamespace(rule, namespace) {
			return failure.New(failure.NotAllowed, "%s does not allow releases in namespace %s: %s",
				rule.GetName(), namespace, notListed(namespace))
		}
	}
	return nil
}

var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind()

// violation returns why a rule does not allow an object, or an empty string if it does.
func violation(rule *toolv1.ObjectRule, object checkedObject) string {
	switch {
	case object.record:
		return "it is a record of a Helm release, which no package may contain"
	case matchesKind(rule.GetDeniedKinds(), object.kind):
		return "its spec.kinds.denied lists " + object.kind.String()
	case object.namespaced && !allowsNamespace(rule, object.namespace):
		return notListed(object.namespace)
	case object.namespaced:
		return ""
	case !matchesKind(rule.GetClusterScopedKinds(), object.kind):
		return "its spec.kinds.clusterScoped does not list " + object.kind.String()
	case object.kind == namespaceKind && !allowsNamespace(rule, object.name):
		return notListed(object.name)
	}
	return ""
}

func notListed(namespace string) string {
	return "its spec.targetNamespaces does not list " + namespace
}

func matchesKind(patterns []*toolv1.KindPattern, kind schema.GroupKind) bool {
	matches := func(pattern, text string) bool { return pattern == "*" || pattern == text }
	return slices.ContainsFunc(patterns, func(pattern *toolv1.KindPattern) bool {
		return matches(pattern.GetGroup(), kind.Group) && matches(pattern.GetKind(), kind.Kind)
	})
}

func allowsNamespace(rule *toolv1.ObjectRule, namespace string) bool {
	return rule.GetAnyNamespace() || slices.ContainsFunc(rule.GetNamespaces(), func(pattern string) bool {
		if prefix, found := strings.CutSuffix(pattern, "*"); found {
			return strings.HasPrefix(namespace, prefix)
		}
		return pattern == namespace
	})
}

// scopes returns whether kinds are namespaced, for objects that may have been written with the CRDs of their kinds.
type scopes struct {
	served func(schema.GroupVersionKind) (namespaced, known bool)
	// defined are the scopes of kinds whose CRDs are in the package. They count only while the cluster does not serve the kind.
	defined map[schema.GroupKind]bool
}

// newScopes returns the scopes of kinds that the cluster serves, or that CRDs among the objects define.
func newScopes(served func(schema.GroupVersionKind) (namespaced, known bool), objects []*unstructured.Unstructured) scopes {
	found := scopes{served: served, defined: map[schema.GroupKind]bool{}}
	for _, object := range objects {
		if object.GroupVersionKind().GroupKind() != crdKind {
			continue
		}
		text := func(fields ...string) string {
			value, _, _ := unstructured.NestedString(object.Object, fields...)
			return value
		}
		kind := schema.GroupKind{Group: text("spec", "group"), Kind: text("spec", "names", "kind")}
		namespaced := text("spec", "scope") == "Namespaced"
		// Of two definitions, the one counts that allows less.
		before, isDefined := found.defined[kind]
		found.defined[kind] = namespaced && (before || !isDefined)
	}
	return found
}

// isUnknown reports whether neither the cluster nor the package defines the kind of an object, as far as it is known.
func (s scopes) isUnknown(object *unstructured.Unstructured) bool {
	gvk := object.GroupVersionKind()
	_, isServed := s.served(gvk)
	_, isDefined := s.defined[gvk.GroupKind()]
	return !isServed && !isDefined
}

// object returns an object as rules see it. Its namespace is that of the release if it names none.
func (s scopes) object(object *unstructured.Unstructured, releaseNamespace string) checkedObject {
	gvk := object.GroupVersionKind()
	namespaced, known := s.served(gvk)
	if !known {
		namespaced = s.defined[gvk.GroupKind()]
	}
	checked := checkedObject{
		kind: gvk.GroupKind(), name: object.GetName(), namespaced: namespaced, record: isRecord(gvk.GroupKind(), object),
	}
	if checked.name == "" {
		checked.name = object.GetGenerateName()
	}
	if namespaced {
		checked.namespace = object.GetNamespace()
		if checked.namespace == "" {
			checked.namespace = releaseNamespace
		}
	}
	return checked
}

// expand returns the objects that a client may make of one document: kubectl and Helm treat every object with items as a list,
// whatever its kind is. An item without a kind has that of the list.
func expand(object *unstructured.Unstructured) []*unstructured.Unstructured {
	items, isList := object.Object["items"].([]any)
	if !isList {
		return []*unstructured.Unstructured{object}
	}
	itemKind, isListKind := strings.CutSuffix(object.GetKind(), "List")
	var all []*unstructured.Unstructured
	if !isListKind {
		all = append(all, object)
	}
	for _, item := range items {
		fields, isObject := item.(map[string]any)
		if !isObject {
			continue
		}
		one := (&unstructured.Unstructured{Object: fields}).DeepCopy()
		if one.GetKind() == "" {
			one.SetKind(itemKind)
		}
		if one.GetAPIVersion() == "" {
			one.SetAPIVersion(object.GetAPIVersion())
		}
		all = append(all, expand(one)...)
	}
	return all
}
