package release

import (
	"reflect"

	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/util/retry"
)

// Helm creates objects client-side under a mutex that is one for the whole process (createMutex in its kube package),
// held until the API server answers: one cluster that stops answering would hold up the creations of all others for
// as long as a request may take. So objects are created here, without the lock, and Helm's own code is left with
// changing what exists. Only an object of the last revision that someone deleted by hand is still created by Helm,
// right after the same cluster has answered that it is not there, and within the request's time limit.
// Server-side apply takes no lock.

func createClientSide(info *resource.Info) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		created, err := helper(info).Create(info.Namespace, true, info.Object)
		if err != nil {
			return err
		}
		return info.Refresh(created, true)
	})
}

// updateClientSide creates what is new and hands the rest to Helm. Helm finds the new objects existing and unchanged.
func (c *client) updateClientSide(original, target kube.ResourceList, options []kube.ClientUpdateOption) (*kube.Result, error) {
	// Not original.Append: the backing array is Helm's.
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
			// What was created is what Helm will compare with: no difference.
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

// Helm's options are functions over a type it does not export; they are asked what they set. If a field is ever
// renamed, the answer is Helm's default and Helm's own code runs: a test notices.
func createsServerSide(options []kube.ClientCreateOption) bool {
	return serverSide(options, func(option kube.ClientCreateOption) any { return applied(option) })
}

func updatesServerSide(options []kube.ClientUpdateOption) bool {
	return serverSide(options, func(option kube.ClientUpdateOption) any { return applied(option) })
}

func serverSide[O any](options []O, apply func(O) any) bool {
	for _, option := range options {
		set := reflect.ValueOf(apply(option))
		// Every option starts from nothing here, so only the one that is about server-side apply can answer
		// "false" truthfully; it is the only one that Helm always passes.
		if field := set.FieldByName("serverSideApply"); field.IsValid() && field.Bool() {
			return true
		}
	}
	return len(options) == 0
}

func applied[T any](option func(*T) error) T {
	var set T
	_ = option(&set)
	return set
}
