package failure

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
)

func TestClassify(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	fieldConflict := apierrors.NewApplyConflict([]metav1.StatusCause{
		{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "kubectl" using v1`, Field: ".data.a"},
	}, "conflict")
	cases := map[string]struct {
		err     error
		want    toolv1.FailureCategory
		message string
	}{
		"known":          {fmt.Errorf("x: %w", New(NotReady, "still starting")), NotReady, "still starting"},
		"refused":        {&url.Error{Op: "Get", URL: "https://a", Err: &net.OpError{Err: syscall.ECONNREFUSED}}, Unreachable, "refused"},
		"dns":            {&url.Error{Op: "Get", URL: "https://a", Err: &net.DNSError{Err: "no such host"}}, Unreachable, "no such host"},
		"certificate":    {&url.Error{Op: "Get", URL: "https://a", Err: x509.UnknownAuthorityError{}}, Unreachable, "unknown authority"},
		"no response":    {fmt.Errorf("x: %w", &RequestTimeoutError{After: time.Second}), Unreachable, "did not respond within 1s"},
		"unauthorized":   {apierrors.NewUnauthorized("no"), Unauthorized, "credentials"},
		"forbidden":      {fmt.Errorf("x: %w", apierrors.NewForbidden(maps, "a", nil)), Forbidden, "permission"},
		"invalid":        {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a", nil), Rejected, "rejected"},
		"bad request":    {apierrors.NewBadRequest("unknown field"), Rejected, "unknown field"},
		"field conflict": {fieldConflict, Conflict, "`conflicts: IgnoreFields` to leave them to \"kubectl\": conflict"},
		"field conflicts": {errors.Join(fmt.Errorf("a: %w", fieldConflict), apierrors.NewApplyConflict([]metav1.StatusCause{
			{Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "autoscaler" with subresource "scale" using v1`},
		}, "b")), Conflict, `to leave them to "autoscaler", "kubectl"`},
		"exists":                {apierrors.NewAlreadyExists(maps, "a"), Conflict, "another client"},
		"no namespace":          {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "a"), Rejected, "namespace does not exist"},
		"unavailable":           {apierrors.NewServiceUnavailable("x"), Unreachable, "is unavailable"},
		"unknown kind":          {fmt.Errorf("x: %w", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "a", Kind: "B"}}), Rejected, "B.a"},
		"revision exists":       {driver.ErrReleaseExists, Conflict, "another client"},
		"hook":                  {fmt.Errorf("failed pre-install: %w", &HookError{Name: "pre-install Job a/b", Err: errors.New("it broke")}), HookFailed, "pre-install Job a/b"},
		"hook timeout":          {&HookError{Name: "pre-install Job a/b", Err: context.DeadlineExceeded}, HookFailed, "did not finish in time"},
		"not ready":             {&WaitError{For: "ready", After: time.Minute, Err: errors.Join(errors.New("Deployment a"), context.DeadlineExceeded)}, NotReady, "not ready after 1m0s: Deployment a"},
		"render":                {&RenderError{Err: errors.New("execution error at (a.yaml:1:3): give a name")}, InvalidValues, "give a name"},
		"template parse":        {&RenderError{Err: errors.New("parse error at (a/templates/b.yaml:3): unclosed action")}, InvalidPackage, "unclosed action"},
		"build":                 {&BuildError{Err: errors.New("Object 'Kind' is missing")}, InvalidPackage, "Kind"},
		"unknown":               {errors.New("strange"), Internal, "strange"},
		"read forbidden":        {&ReadError{Path: "/x", Status: 403}, Forbidden, "/x"},
		"read without response": {&ReadError{Path: "/x", Err: &RequestTimeoutError{After: time.Second}}, Unreachable, "1s"},
		"hook with a network error": {&HookError{Name: "h", Err: &net.OpError{Err: syscall.ECONNREFUSED}},
			Unreachable, "refused"},
		"owned by another release": {errors.New(`unable to continue with install: ConfigMap "a" in namespace "b" exists and cannot be imported into the current release: invalid ownership metadata`),
			Conflict, `ConfigMap "a" in namespace "b" exists`},
		"pending": {errors.New("another operation (install/upgrade/rollback) is in progress"), Conflict, "in progress"},
		"schema": {&RenderError{Err: errors.New("values don't meet the specifications of the schema(s) in the following chart(s):\nweb:\n- at '/a': got string, want integer\n")},
			InvalidValues, "at '/a': got string, want integer"},
		"schema, pattern": {schemaError(`at '/a/b': 'it\'s' does not match pattern '^a$'`),
			InvalidValues, "at '/a/b': the value does not match pattern '^a$'"},
		"schema, format": {schemaError(`at '/a': 'x y' is not valid email: missing @`),
			InvalidValues, "at '/a': the value is not valid email: missing @"},
		"schema, bounds": {schemaError(`at '/a': minimum: got 5, want 10`),
			InvalidValues, "at '/a': minimum: got another value, want 10"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Proto(c.err)
			if got.GetCategory() != c.want || !strings.Contains(got.GetMessage(), c.message) {
				t.Fatalf("got %v %q, want %v with %q", got.GetCategory(), got.GetMessage(), c.want, c.message)
			}
		})
	}
}

func schemaError(line string) error {
	return &RenderError{Err: errors.New(textSchema + " in the following chart(s):\nweb:\n- " + line + "\n")}
}

func TestFieldValuesAreRedacted(t *testing.T) {
	cases := map[string][2]string{
		"number":    {`spec.replicas: Invalid value: -42: must be positive`, `spec.replicas: Invalid value: must be positive`},
		"text":      {`a: Invalid value: "s\": x": must be b`, `a: Invalid value: must be b`},
		"object":    {`a: Invalid value: {"k": "s: x"}: must be b`, `a: Invalid value: must be b`},
		"word":      {`a: Duplicate value: s`, `a: Duplicate value`},
		"several":   {`[a: Invalid value: 1: b, c: Unsupported value: "s": supported values: "x"]`, `[a: Invalid value: b, c: Unsupported value: supported values: "x"]`},
		"untouched": {`a: Required value: give one`, `a: Required value: give one`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Proto(errors.New(c[0])).GetMessage(); got != c[1] {
				t.Fatalf("got %q, want %q", got, c[1])
			}
		})
	}
}

func TestLongMessagesAreTruncated(t *testing.T) {
	got := Proto(errors.New(strings.Repeat("ä", 10000))).GetMessage()
	if len(got) > maxMessage+4 || !strings.HasSuffix(got, "…") {
		t.Fatalf("%d bytes", len(got))
	}
}
