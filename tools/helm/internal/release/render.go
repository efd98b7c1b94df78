package release

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/cluster"
	"chandler.dev/tools/helm/internal/failure"
	"chandler.dev/tools/helm/internal/logging"
	"chandler.dev/tools/helm/internal/values"
)

// Render returns the objects that Apply would apply, and those of the revision that it would change. Without a chart, it renders
// nothing. It writes nothing: Helm gets the revisions in memory, and a client that builds no objects.
func (r *Release) Render(spec ApplySpec) (*toolv1.RenderedRelease, error) {
	if err := r.prepareRender(spec); err != nil {
		return nil, err
	}
	revisions, err := r.records.newestAndDeployed()
	if err != nil {
		return nil, err
	}
	rendered := &toolv1.RenderedRelease{}
	base, err := r.renderStored(rendered, revisions, spec)
	if err != nil || spec.Chart == nil {
		return rendered, err
	}
	next, err := r.renderNext(spec, revisions, base != nil)
	if err != nil {
		return nil, err
	}
	if err := checkRecord(next); err != nil {
		return nil, err
	}
	canonical, err := values.Canonical(next.Config)
	if err != nil {
		return nil, err
	}
	rendered.ValuesDigest = values.Digest(canonical)
	rendered.PackageVersion = next.Chart.Metadata.Version
	if rendered.Objects, err = r.objectsOf(next, !spec.Options.GetDisableHooks()); err != nil {
		return nil, err
	}
	if spec.Bundle == nil && spec.Chart.HasCRDs() && rendersCRDs(spec.Options.GetCrds(), base != nil) {
		crds, err := crdObjects(spec)
		if err != nil {
			return nil, err
		}
		if rendered.Objects, err = r.appendObjects(rendered.Objects, toolv1.ObjectRole_OBJECT_ROLE_CRD, crds); err != nil {
			return nil, err
		}
	}
	return rendered, nil
}

func (r *Release) prepareRender(spec ApplySpec) error {
	if spec.Chart == nil {
		return r.session.EnsureDiscovery(discoveryMaxAge)
	}
	if err := spec.Chart.CheckInstallable(); err != nil {
		return err
	}
	return r.prepare(spec.Chart)
}

// renderStored adds the newest revision, and the one that an upgrade is based on, which it returns. It returns nil if the next
// operation is an install.
func (r *Release) renderStored(rendered *toolv1.RenderedRelease, revisions []*rspb.Release, spec ApplySpec) (*rspb.Release, error) {
	if len(revisions) == 0 {
		return nil, nil
	}
	var err error
	if rendered.Newest, err = newState(revisions[0], r.session); err != nil {
		return nil, err
	}
	if status := revisions[0].Info.Status; status == rcommon.StatusUninstalled || status == rcommon.StatusUninstalling {
		return nil, nil
	}
	base := baseRevision(revisions)
	if rendered.Base, err = newState(base, r.session); err != nil {
		return nil, err
	}
	if rendered.BaseObjects, err = r.objectsOf(base, !spec.Options.GetDisableHooks()); err != nil {
		return nil, err
	}
	if base.Chart != nil && rendersCRDs(spec.Options.GetCrds(), true) {
		crds, err := crdFiles(base.Chart)
		if err != nil {
			return nil, err
		}
		if rendered.BaseObjects, err = r.appendObjects(rendered.BaseObjects, toolv1.ObjectRole_OBJECT_ROLE_CRD, crds); err != nil {
			return nil, err
		}
	}
	return base, nil
}

// rendersCRDs reports whether Apply creates or replaces the objects in crds/. An upgrade creates those that do not exist, too,
// but most of them do.
func rendersCRDs(policy toolv1.CrdPolicy, upgrade bool) bool {
	switch policy {
	case toolv1.CrdPolicy_CRD_POLICY_SKIP:
		return false
	case toolv1.CrdPolicy_CRD_POLICY_CREATE_REPLACE:
		return true
	default:
		return !upgrade
	}
}

// renderNext returns the next revision, which is not stored.
func (r *Release) renderNext(spec ApplySpec, revisions []*rspb.Release, upgrade bool) (*rspb.Release, error) {
	if spec.Bundle != nil {
		revision := 1
		if len(revisions) > 0 {
			revision = revisions[0].Version + 1
		}
		var err error
		if spec.rendered, err = r.renderBundle(spec, revision, upgrade); err != nil {
			return nil, err
		}
	}
	config, err := r.renderConfiguration(revisions)
	if err != nil {
		return nil, err
	}
	// The operation's context ends the templates, which send no requests in the background.
	ctx := r.operation.Context()
	var found any
	if upgrade {
		action := r.newUpgrade(config, spec)
		action.DryRunStrategy = dryRun
		found, err = action.RunWithContext(ctx, r.name, spec.Chart.Clone(), spec.Values)
	} else {
		action := r.newInstall(config, spec)
		action.DryRunStrategy = dryRun
		found, err = action.RunWithContext(ctx, spec.Chart.Clone(), spec.Values)
	}
	if err != nil {
		return nil, r.client.wrapError(err)
	}
	next, ok := found.(*rspb.Release)
	if !ok {
		return nil, failure.New(failure.Internal, "Helm rendered a %T", found)
	}
	return next, nil
}

// dryRun makes Helm stop before the first write, and lets templates read from the cluster.
const dryRun = action.DryRunServer

// renderConfiguration returns the configuration of a Helm action that writes nothing.
func (r *Release) renderConfiguration(revisions []*rspb.Release) (*action.Configuration, error) {
	stored, err := renderStorage(r.namespace, revisions, r.operation.Log.Handler())
	if err != nil {
		return nil, err
	}
	config := r.configuration()
	config.Releases = stored
	config.KubeClient = renderClient{r.client}
	return config, nil
}

// renderStorage returns a storage with copies of the revisions in memory. A pending revision is a failed one in it, as after a
// recovery.
func renderStorage(namespace string, revisions []*rspb.Release, log slog.Handler) (*storage.Storage, error) {
	memory := driver.NewMemory()
	memory.SetLogger(logging.LibraryHandler(log))
	memory.SetNamespace(namespace)
	stored := storage.Init(memory)
	for _, revision := range revisions {
		copied, info := *revision, *revision.Info
		if copied.Info = &info; info.Status.IsPending() {
			copied.SetStatus(rcommon.StatusFailed, interrupted)
		}
		if err := stored.Create(&copied); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// renderClient builds no objects, so that the kinds of rendered objects need not be served and no object is read.
type renderClient struct{ *client }

var _ kube.Interface = renderClient{}

// Build implements kube.Interface.
func (c renderClient) Build(io.Reader, bool) (kube.ResourceList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rendered = true
	return nil, nil
}

// objectsOf returns the objects of a revision, and those of its hooks.
func (r *Release) objectsOf(revision *rspb.Release, hooks bool) ([]*toolv1.RenderedObject, error) {
	var objects []*toolv1.RenderedObject
	found, err := decodeDocuments([]byte(revision.Manifest))
	if err != nil {
		return nil, unreadable(revision, err)
	}
	objects, err = r.appendObjects(objects, toolv1.ObjectRole_OBJECT_ROLE_UNSPECIFIED, found)
	if err != nil || !hooks {
		return objects, err
	}
	for _, hook := range revision.Hooks {
		found, err := decodeDocuments([]byte(hook.Manifest))
		if err != nil {
			return nil, unreadable(revision, err)
		}
		if objects, err = r.appendObjects(objects, toolv1.ObjectRole_OBJECT_ROLE_HOOK, found); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// unreadable returns the error for objects that cannot be parsed, without their text, which may contain secrets.
func unreadable(revision *rspb.Release, err error) error {
	return failure.Wrap(failure.InvalidPackage, err, "the objects of revision %d are not valid YAML: %v",
		revision.Version, values.WithoutQuotedInput(err))
}

// appendObjects appends objects, of which lists are expanded.
func (r *Release) appendObjects(
	objects []*toolv1.RenderedObject, role toolv1.ObjectRole, found []*unstructured.Unstructured,
) ([]*toolv1.RenderedObject, error) {
	for _, object := range found {
		items, err := flatten(object)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			text, err := json.Marshal(item.Object)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", item.GetKind(), item.GetName(), err)
			}
			ref := refOf(item, r.namespace, r.session)
			objects = append(objects, &toolv1.RenderedObject{Object: ref, Role: role, Json: text})
		}
	}
	return objects, nil
}

// flatten returns an object, or the objects of a list, which may contain lists. Items of typed lists, such as a SecretList, need
// not name their kind: they get it, because a Secret must be known as one to be masked. An object with items whose kind does not
// end in List is no list.
func flatten(object *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	itemKind, isList := strings.CutSuffix(object.GetKind(), "List")
	if !isList || !object.IsList() {
		return []*unstructured.Unstructured{object}, nil
	}
	var flat []*unstructured.Unstructured
	err := object.EachListItem(func(found runtime.Object) error {
		item, ok := found.(*unstructured.Unstructured)
		if !ok {
			return failure.New(failure.Internal, "an item of %s is a %T", object.GetKind(), found)
		}
		if item.GetKind() == "" && item.GetAPIVersion() == "" {
			item = item.DeepCopy()
			item.SetKind(itemKind)
			item.SetAPIVersion(object.GetAPIVersion())
		}
		items, err := flatten(item)
		flat = append(flat, items...)
		return err
	})
	return flat, err
}

// refOf returns the reference of an object. Objects of kinds that are not served keep their namespace.
func refOf(object *unstructured.Unstructured, namespace string, session *cluster.Session) *toolv1.ObjectRef {
	named := manifestObject{APIVersion: object.GetAPIVersion(), Kind: object.GetKind()}
	named.Metadata.Name, named.Metadata.Namespace = object.GetName(), object.GetNamespace()
	return newObjectRef(named, namespace, session)
}
