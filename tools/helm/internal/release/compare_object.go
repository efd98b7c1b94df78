package release

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/failure"
)

// driftAnnotation with the value "ignore", on an object on the cluster or in a package, excludes the object from comparisons.
const (
	driftAnnotation = "chandler.dev/drift"
	driftIgnore     = "ignore"
)

// textNoDryRun is part of the API server's message about a webhook whose side effects do not allow dry runs
// (NewDryRunUnsupportedErr in k8s.io/apiserver/pkg/admission/plugin/webhook/errors).
const textNoDryRun = "does not support dry run"

// Controllers write the status of an object right after it was changed, which changes its resource version, too. So an object is
// read again up to maxAttempts times, after an increasing pause.
const (
	maxAttempts  = 5
	attemptPause = 100 * time.Millisecond
)

// compareObject compares an object, again if it changes meanwhile. It fails only if the cluster does not answer.
func (c *comparer) compareObject(info *resource.Info) (*toolv1.ObjectComparison, error) {
	var (
		found *toolv1.ObjectComparison
		err   error
	)
	for attempt := range maxAttempts {
		c.pause(attempt)
		found, err = c.compareOnce(info)
		if !apierrors.IsConflict(err) {
			break
		}
	}
	if err == nil {
		return found, nil
	}
	if !isAnswer(err) || c.release.operation.Context().Err() != nil {
		return nil, err
	}
	if found == nil {
		found = &toolv1.ObjectComparison{Outcome: unknown}
	}
	found.Reason = c.reason(info, err)
	return found, nil
}

// pause waits before an attempt, unless the operation ends.
func (c *comparer) pause(attempt int) {
	select {
	case <-time.After(time.Duration(attempt) * attemptPause):
	case <-c.release.operation.Context().Done():
	}
}

// compareOnce compares an object. If a correction has failed, it returns the difference and the error.
func (c *comparer) compareOnce(info *resource.Info) (*toolv1.ObjectComparison, error) {
	recorded, ok := info.Object.(*unstructured.Unstructured)
	if !ok {
		return nil, failure.New(failure.Internal, "an object of the release was read as %T", info.Object)
	}
	switch {
	case info.Name == "":
		return result(ignored, "its name is generated"), nil
	case isJob(recorded):
		return result(ignored, "it is a Job: creating it again would run it again"), nil
	case isExcluded(recorded):
		return result(ignored, "the package excludes it with the annotation "+driftAnnotation), nil
	}
	live, err := readLive(info)
	if err != nil {
		return nil, err
	}
	if live == nil {
		return c.handleMissing(info, recorded)
	}
	switch {
	case isExcluded(live):
		return result(ignored, "it has the annotation "+driftAnnotation), nil
	case live.GetDeletionTimestamp() != nil:
		return result(unknown, "it is being deleted"), nil
	}
	if owner := otherOwner(live, c.release.name, c.release.namespace); owner != "" {
		return result(unknown, "it belongs to the release "+owner), nil
	}
	return c.compareLive(info, recorded, live)
}

// compareLive compares an object with that on the cluster, and corrects it if requested.
func (c *comparer) compareLive(info *resource.Info, recorded, live *unstructured.Unstructured) (*toolv1.ObjectComparison, error) {
	pointers := append(c.ignoredPointers(info), controlledPointers(live)...)
	body := c.body(recorded)
	exempt, err := exemptPaths(live, body, pointers)
	if err != nil {
		return nil, err
	}
	keepLive(body.Object, live.Object, exempt)
	body.SetResourceVersion(live.GetResourceVersion())
	wanted, err := applyObject(info, body, c.force, true)
	if err != nil {
		return nil, err
	}
	if pinLive(body.Object, wanted.Object, live.Object, exempt) {
		if wanted, err = applyObject(info, body, c.force, true); err != nil {
			return nil, err
		}
	}
	paths := differences(live, wanted, exempt, pointers)
	if len(paths) == 0 {
		return result(inSync, ""), nil
	}
	if !c.spec.Correct {
		return result(drifted, "", paths...), nil
	}
	return c.correct(info, live, body, paths)
}

// body returns the object as it is applied.
func (c *comparer) body(recorded *unstructured.Unstructured) *unstructured.Unstructured {
	body := c.release.owned(recorded)
	body.SetResourceVersion("")
	encodeStringData(body)
	return body
}

// encodeStringData moves the stringData of a Secret to its data, where the fields on the cluster are.
func encodeStringData(object *unstructured.Unstructured) {
	if !isSecret(object) {
		return
	}
	texts, found, err := unstructured.NestedStringMap(object.Object, "stringData")
	if !found || err != nil {
		return
	}
	data, _, err := unstructured.NestedMap(object.Object, "data")
	if err != nil {
		return
	}
	if data == nil {
		data = map[string]any{}
	}
	for key, text := range texts {
		data[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	object.Object["data"] = data
	delete(object.Object, "stringData")
}

func isSecret(object *unstructured.Unstructured) bool {
	return object.GetAPIVersion() == "v1" && object.GetKind() == "Secret"
}

func isJob(object *unstructured.Unstructured) bool {
	kind := object.GroupVersionKind()
	return kind.Group == "batch" && kind.Kind == "Job"
}

func isExcluded(object *unstructured.Unstructured) bool {
	return object.GetAnnotations()[driftAnnotation] == driftIgnore
}

// ignoredPointers returns the paths of the rules for an object.
func (c *comparer) ignoredPointers(info *resource.Info) []string {
	ref := objectRef(info)
	matches := func(want, got string) bool { return want == "" || want == got }
	var pointers []string
	for _, rule := range c.spec.Ignore {
		if matches(rule.GetKind(), ref.GetKind()) && matches(rule.GetName(), ref.GetName()) &&
			matches(rule.GetNamespace(), ref.GetNamespace()) {
			pointers = append(pointers, rule.GetPaths()...)
		}
	}
	return pointers
}

// controlledPointers returns the fields that the control plane overwrites, although packages may set them: the rules of a
// ClusterRole that aggregates those of others.
func controlledPointers(live *unstructured.Unstructured) []string {
	kind := live.GroupVersionKind()
	if kind.Group != "rbac.authorization.k8s.io" || kind.Kind != "ClusterRole" || live.Object["aggregationRule"] == nil {
		return nil
	}
	return []string{"/rules"}
}

// reason returns why an object could not be compared or corrected. Messages about a Secret may quote its data.
func (c *comparer) reason(info *resource.Info, err error) string {
	kind := info.Mapping.GroupVersionKind.Kind
	switch {
	case strings.Contains(err.Error(), textNoDryRun):
		return "a webhook does not support dry runs: " + failure.Proto(err, c.secrets...).GetMessage()
	case apierrors.IsConflict(err):
		return "another client changes it at the same time"
	case kind == "Secret":
		return fmt.Sprintf("the API server refused the Secret (%s)", apierrors.ReasonForError(err))
	}
	return failure.Proto(err, c.secrets...).GetMessage()
}

// isAnswer reports whether the error is an answer of the API server about an object. Otherwise the cluster is not reachable, or
// does not accept the credentials.
func isAnswer(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && !apierrors.IsUnauthorized(err)
}

// readLive reads the object from the cluster. It returns nil if the object does not exist.
func readLive(info *resource.Info) (*unstructured.Unstructured, error) {
	found, err := newHelper(info).Get(info.Namespace, info.Name)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return asUnstructured(found)
}

// isMissing reports whether the API server answered that an object does not exist. It also answers with 404 if it does not serve
// the kind.
func isMissing(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	_, isUnexpected := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	return !isUnexpected
}
