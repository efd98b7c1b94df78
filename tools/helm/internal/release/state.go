package release

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	rspb "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	toolv1 "chandler.dev/tools/helm/gen/chandler/tool/v1"
	"chandler.dev/tools/helm/internal/cluster"
	"chandler.dev/tools/helm/internal/values"
)

var releaseStatuses = map[rcommon.Status]toolv1.ReleaseStatus{
	rcommon.StatusDeployed:        toolv1.ReleaseStatus_RELEASE_STATUS_DEPLOYED,
	rcommon.StatusFailed:          toolv1.ReleaseStatus_RELEASE_STATUS_FAILED,
	rcommon.StatusSuperseded:      toolv1.ReleaseStatus_RELEASE_STATUS_SUPERSEDED,
	rcommon.StatusUninstalled:     toolv1.ReleaseStatus_RELEASE_STATUS_UNINSTALLED,
	rcommon.StatusUninstalling:    toolv1.ReleaseStatus_RELEASE_STATUS_UNINSTALLING,
	rcommon.StatusPendingInstall:  toolv1.ReleaseStatus_RELEASE_STATUS_PENDING_INSTALL,
	rcommon.StatusPendingUpgrade:  toolv1.ReleaseStatus_RELEASE_STATUS_PENDING_UPGRADE,
	rcommon.StatusPendingRollback: toolv1.ReleaseStatus_RELEASE_STATUS_PENDING_ROLLBACK,
}

// newState returns the state of a revision.
func newState(release *rspb.Release, session *cluster.Session) (*toolv1.ReleaseState, error) {
	canonical, err := values.Canonical(release.Config)
	if err != nil {
		return nil, err
	}
	state := &toolv1.ReleaseState{
		Release:      &toolv1.Release{Name: release.Name, Namespace: release.Namespace},
		Revision:     uint32(max(release.Version, 0)), //nolint:gosec // never negative
		InputDigest:  inputDigest(release.Labels, release.Version),
		ValuesDigest: values.Digest(canonical),
		Inventory:    inventory(release.Manifest, release.Namespace, session),
		Method:       toolv1.ApplyMethod_APPLY_METHOD_CLIENT_SIDE,
	}
	state.RolledBackDigest = rolledBackDigest(release.Labels, release.Version)
	if release.ApplyMethod == string(rspb.ApplyMethodServerSideApply) {
		state.Method = toolv1.ApplyMethod_APPLY_METHOD_SERVER_SIDE
	}
	if release.Chart != nil && release.Chart.Metadata != nil {
		state.PackageName = release.Chart.Metadata.Name
		state.PackageVersion = release.Chart.Metadata.Version
		state.AppVersion = release.Chart.Metadata.AppVersion
	}
	if info := release.Info; info != nil {
		state.Status = releaseStatuses[info.Status]
		state.FirstDeployed = timestamp(info.FirstDeployed)
		state.LastDeployed = timestamp(info.LastDeployed)
		state.Description = info.Description
	}
	return state, nil
}

func newHistory(releases []*rspb.Release) []*toolv1.Revision {
	history := make([]*toolv1.Revision, 0, len(releases))
	for _, release := range releases {
		revision := &toolv1.Revision{Revision: uint32(max(release.Version, 0))} //nolint:gosec // never negative
		if release.Chart != nil && release.Chart.Metadata != nil {
			revision.PackageVersion = release.Chart.Metadata.Version
		}
		if info := release.Info; info != nil {
			revision.Status = releaseStatuses[info.Status]
			revision.Updated = timestamp(info.LastDeployed)
			revision.Description = info.Description
		}
		history = append(history, revision)
	}
	return history
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

type manifestObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []manifestObject `json:"items"`
}

// inventory returns the objects of a manifest, in order.
func inventory(manifest, namespace string, session *cluster.Session) []*toolv1.ObjectRef {
	documents := releaseutil.SplitManifests(manifest)
	names := make([]string, 0, len(documents))
	for name := range documents {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	var objects []*toolv1.ObjectRef
	for _, name := range names {
		var object manifestObject
		if err := yaml.Unmarshal([]byte(documents[name]), &object); err != nil || object.Kind == "" {
			continue
		}
		items := []manifestObject{object}
		if strings.HasSuffix(object.Kind, "List") && len(object.Items) > 0 {
			items = object.Items
		}
		for _, item := range items {
			objects = append(objects, newObjectRef(item, namespace, session))
		}
	}
	return objects
}

func newObjectRef(object manifestObject, namespace string, session *cluster.Session) *toolv1.ObjectRef {
	ref := &toolv1.ObjectRef{
		ApiVersion: object.APIVersion,
		Kind:       object.Kind,
		Namespace:  object.Metadata.Namespace,
		Name:       object.Metadata.Name,
	}
	gvk := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind)
	if namespaced, known := session.Namespaced(gvk); known {
		switch {
		case !namespaced:
			ref.Namespace = ""
		case ref.Namespace == "":
			ref.Namespace = namespace
		}
	}
	return ref
}
