package release

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	rspb "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// records are the Secrets of one release, read once per operation and kept in step with the operation's own writes.
// Helm lists them again at every turn; a writer in between is caught when a revision is created, which is Helm's lock.
type records struct {
	typedcorev1.SecretInterface
	name string
	// refuse, if set and not nil, says why the record may not be marked as finished or deleted now.
	refuse func() error

	mu     sync.Mutex
	loaded bool
	items  map[string]*corev1.Secret
	// unsaved holds why the last write of a record failed.
	unsaved map[string]error
}

func newRecords(secrets typedcorev1.SecretInterface, name string) *records {
	return &records{SecretInterface: secrets, name: name, items: map[string]*corev1.Secret{}, unsaved: map[string]error{}}
}

// load reads the release's Secrets.
func (r *records) load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded {
		return nil
	}
	selector := labels.Set{"name": r.name, "owner": "helm"}.AsSelector()
	list, err := r.SecretInterface.List(context.Background(), metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return err
	}
	for i := range list.Items {
		r.items[list.Items[i].Name] = &list.Items[i]
	}
	r.loaded = true
	return nil
}

// newest decodes up to limit revisions, newest first. Zero: all.
func (r *records) newest(limit int) ([]*rspb.Release, error) {
	if err := r.load(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	secrets := slices.Collect(maps.Values(r.items))
	r.mu.Unlock()
	slices.SortFunc(secrets, func(a, b *corev1.Secret) int { return cmp.Compare(revisionOf(b), revisionOf(a)) })
	if limit > 0 && len(secrets) > limit {
		secrets = secrets[:limit]
	}
	storage := driver.NewSecrets(r)
	releases := make([]*rspb.Release, 0, len(secrets))
	for _, secret := range secrets {
		found, err := storage.Get(secret.Name)
		if err != nil {
			return nil, err
		}
		if release, ok := found.(*rspb.Release); ok {
			releases = append(releases, release)
		}
	}
	return releases, nil
}

func revisionOf(secret *corev1.Secret) int {
	revision, err := strconv.Atoi(secret.Labels["version"])
	if err != nil {
		return 0
	}
	return revision
}

func (r *records) List(_ context.Context, options metav1.ListOptions) (*corev1.SecretList, error) {
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, err
	}
	if err := r.load(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	list := &corev1.SecretList{}
	for _, name := range slices.Sorted(maps.Keys(r.items)) {
		if secret := r.items[name]; selector.Matches(labels.Set(secret.Labels)) {
			list.Items = append(list.Items, *shallow(secret))
		}
	}
	return list, nil
}

func (r *records) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	if err := r.load(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if secret, ok := r.items[name]; ok {
		return shallow(secret), nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

func (r *records) Create(ctx context.Context, secret *corev1.Secret, options metav1.CreateOptions) (*corev1.Secret, error) {
	created, err := r.SecretInterface.Create(ctx, secret, options)
	r.remember(created, err)
	return created, err
}

func (r *records) Update(ctx context.Context, secret *corev1.Secret, options metav1.UpdateOptions) (*corev1.Secret, error) {
	if secret.Labels["status"] == "uninstalled" {
		if err := r.refusal(); err != nil {
			return nil, err
		}
	}
	updated, err := r.SecretInterface.Update(ctx, secret, options)
	r.remember(updated, err)
	r.note(secret.Name, err)
	return updated, err
}

func (r *records) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if err := r.refusal(); err != nil {
		return err
	}
	err := r.SecretInterface.Delete(ctx, name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.items, name)
	delete(r.unsaved, name)
	return nil
}

func (r *records) note(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		delete(r.unsaved, name)
		return
	}
	r.unsaved[name] = err
}

// written is the failure of a write that Helm has passed over: it calls an operation a success whose end it could not
// record. Nil: every record says what has happened.
func (r *records) written() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, err := range r.unsaved {
		return fmt.Errorf("recording the end of the operation in %s: %w", name, err)
	}
	return nil
}

func (r *records) remember(secret *corev1.Secret, err error) {
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items[secret.Name] = secret
}

func (r *records) refusal() error {
	if r.refuse == nil {
		return nil
	}
	return r.refuse()
}

// shallow protects the labels, which Helm changes in place; nothing changes the data.
func shallow(secret *corev1.Secret) *corev1.Secret {
	copied := *secret
	copied.Labels = maps.Clone(secret.Labels)
	return &copied
}

// known says whether the Secrets have been read.
func (r *records) known() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loaded
}
