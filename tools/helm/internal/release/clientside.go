package release

import (
	"reflect"

	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/util/retry"
)

// Helm creates objects client-side under a process-wide mutex (createMutex in its package kube), which it holds until
// the API server responds. One unresponsive cluster would block creations on all other clusters. So the driver creates
// objects itself, without the mutex, and leaves updates to Helm. Helm still creates objects of the last revision that
// were deleted on the cluster. Server-side apply does not use the mutex.

func createClientSide(info *resource.Info) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		created, err := newHelper(info).Create(info.Namespace, true, info.Object)
		if err != nil {
			return err
		}
		return info.Refresh(created, true)
	})
}

// updateClientSide creates new objects and leaves the others to Helm, which then finds the new objects unchanged.
func (c *client) updateClientSide(original, target kube.ResourceList, options []kube.ClientUpdateOption) (*kube.Result, error) {
	// Copies the list, because original.Append would change Helm's array.
	known := append(kube.ResourceList{}, original...)
	var created kube.ResourceList
	for _, info := range target {
		if original.Contains(info) || info.Name == "" {
			continue
		}
		before := *info
		before.Object = info.Object.DeepCopyObject()
		switch err := createClientSide(info); {
		case apierrors.IsAlreadyExists(err):
		case err != nil:
			return &kube.Result{Created: append(created, info)}, err
		default:
			// Helm compares the target with this copy and finds no difference.
			*info = before
			created.Append(info)
			same := before
			known.Append(&same)
		}
	}
	result, err := c.Client.Update(known, target, options...)
	if result != nil {
		result.Created = append(created, result.Created...)
	}
	return result, err
}

// isServerSideCreate reports whether the options select server-side apply. The options are functions on a type that
// Helm does not export, so reflection reads the field that they set. A test fails if Helm renames the field.
func isServerSideCreate(options []kube.ClientCreateOption) bool {
	return serverSide(options, func(option kube.ClientCreateOption) any { return evaluate(option) })
}

func isServerSideUpdate(options []kube.ClientUpdateOption) bool {
	return serverSide(options, func(option kube.ClientUpdateOption) any { return evaluate(option) })
}

func serverSide[O any](options []O, apply func(O) any) bool {
	for _, option := range options {
		set := reflect.ValueOf(apply(option))
		// Each option is applied to a zero value, so only the option for server-side apply can set the field. Helm
		// always passes that option.
		if field := set.FieldByName("serverSideApply"); field.IsValid() && field.Bool() {
			return true
		}
	}
	return len(options) == 0
}

func evaluate[T any](option func(*T) error) T {
	var set T
	_ = option(&set)
	return set
}
