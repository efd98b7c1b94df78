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

// APISet is the version and the discovery of an API server. It is immutable and shared between clusters.
type APISet struct {
	Version      *version.Info
	Capabilities *common.Capabilities
	groups       []*metav1.APIGroup
	resources    []*metav1.APIResourceList
	mapper       meta.RESTMapper
}

// fetchAPIs sends three requests: for the version and for the aggregated discovery of the core and the named groups.
func fetchAPIs(client discovery.DiscoveryInterface, apiSets *apiSetInterner) (*APISet, error) {
	serverVersion, err := client.ServerVersion()
	if err != nil {
		return nil, err
	}
	groups, resources, err := client.ServerGroupsAndResources()
	// An aggregated API server that is unavailable affects only its own group.
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	return apiSets.get(serverVersion, groups, resources)
}

func newAPISet(serverVersion *version.Info, groups []*metav1.APIGroup, resources []*metav1.APIResourceList) (*APISet, error) {
	set := &APISet{Version: serverVersion, groups: groups, resources: resources}
	set.mapper = restmapper.NewDiscoveryRESTMapper(groupResources(groups, resources))
	versions, err := action.GetVersionSet(setDiscovery{set: set})
	if err != nil {
		return nil, err
	}
	// The same fields that Helm's discovery sets.
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

// apiSetInterner deduplicates the sets of clusters that serve the same APIs. The garbage collector frees sets that no
// cluster uses.
type apiSetInterner struct {
	mu   sync.Mutex
	sets map[[sha256.Size]byte]weak.Pointer[APISet]
}

func newAPISetInterner() *apiSetInterner {
	return &apiSetInterner{sets: map[[sha256.Size]byte]weak.Pointer[APISet]{}}
}

func (i *apiSetInterner) get(serverVersion *version.Info, groups []*metav1.APIGroup, resources []*metav1.APIResourceList) (*APISet, error) {
	key, err := apiSetKey(serverVersion, groups, resources)
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

func apiSetKey(serverVersion *version.Info, groups []*metav1.APIGroup, resources []*metav1.APIResourceList) ([sha256.Size]byte, error) {
	slices.SortFunc(resources, func(a, b *metav1.APIResourceList) int {
		return strings.Compare(a.GroupVersion, b.GroupVersion)
	})
	data, err := json.Marshal([]any{serverVersion, groups, resources})
	return sha256.Sum256(data), err
}
