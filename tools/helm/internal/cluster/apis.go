package cluster

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"weak"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// APISet is what a cluster serves. It never changes: a cluster that changes gets another one.
type APISet struct {
	Version      *version.Info
	Capabilities *common.Capabilities
	groups       []*metav1.APIGroup
	resources    []*metav1.APIResourceList
	mapper       meta.RESTMapper
}

// fetch asks the API server in three requests: its version, and the aggregated discovery of the core and other groups.
func fetch(client discovery.DiscoveryInterface, shared *interned) (*APISet, error) {
	serverVersion, err := client.ServerVersion()
	if err != nil {
		return nil, err
	}
	groups, resources, err := client.ServerGroupsAndResources()
	// An aggregated API that is down takes only its own group away.
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	return shared.get(serverVersion, groups, resources)
}

func newAPISet(serverVersion *version.Info, groups []*metav1.APIGroup, resources []*metav1.APIResourceList) (*APISet, error) {
	set := &APISet{Version: serverVersion, groups: groups, resources: resources}
	set.mapper = restmapper.NewDiscoveryRESTMapper(groupResources(groups, resources))
	versions, err := action.GetVersionSet(served{set: set})
	if err != nil {
		return nil, err
	}
	// As Helm's own discovery fills it.
	set.Capabilities = &common.Capabilities{
		APIVersions: versions,
		KubeVersion: common.KubeVersion{
			Version: serverVersion.GitVersion,
			Major:   serverVersion.Major,
			Minor:   serverVersion.Minor,
		},
		HelmVersion: common.DefaultCapabilities.HelmVersion,
	}
	return set, nil
}

func groupResources(groups []*metav1.APIGroup, resources []*metav1.APIResourceList) []*restmapper.APIGroupResources {
	byVersion := map[string][]metav1.APIResource{}
	for _, list := range resources {
		byVersion[list.GroupVersion] = list.APIResources
	}
	result := make([]*restmapper.APIGroupResources, 0, len(groups))
	for _, group := range groups {
		one := &restmapper.APIGroupResources{Group: *group, VersionedResources: map[string][]metav1.APIResource{}}
		for _, groupVersion := range group.Versions {
			if list, ok := byVersion[groupVersion.GroupVersion]; ok {
				one.VersionedResources[groupVersion.Version] = list
			}
		}
		result = append(result, one)
	}
	return result
}

// interned lets clusters that serve the same share one set. Sets that no cluster uses any more go away by themselves.
type interned struct {
	mu   sync.Mutex
	sets map[[sha256.Size]byte]weak.Pointer[APISet]
}

func newInterned() *interned {
	return &interned{sets: map[[sha256.Size]byte]weak.Pointer[APISet]{}}
}

func (i *interned) get(serverVersion *version.Info, groups []*metav1.APIGroup, resources []*metav1.APIResourceList) (*APISet, error) {
	key, err := contentKey(serverVersion, groups, resources)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if set := i.sets[key].Value(); set != nil {
		return set, nil
	}
	set, err := newAPISet(serverVersion, groups, resources)
	if err != nil {
		return nil, err
	}
	for old, pointer := range i.sets {
		if pointer.Value() == nil {
			delete(i.sets, old)
		}
	}
	i.sets[key] = weak.Make(set)
	return set, nil
}

func contentKey(serverVersion *version.Info, groups []*metav1.APIGroup, resources []*metav1.APIResourceList) ([sha256.Size]byte, error) {
	slices.SortFunc(resources, func(a, b *metav1.APIResourceList) int {
		return strings.Compare(a.GroupVersion, b.GroupVersion)
	})
	data, err := json.Marshal([]any{serverVersion, groups, resources})
	return sha256.Sum256(data), err
}
