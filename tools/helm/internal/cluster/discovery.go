package cluster

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// setDiscovery implements discovery with an APISet.
type setDiscovery struct {
	discovery.ServerResourcesInterface
	set *APISet
}

func (s setDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return s.set.groups, s.set.resources, nil
}

// cachedDiscovery implements discovery with the cached APIs of the cluster. Helm invalidates its discovery client
// often; here mapper refreshes the cache when a kind is missing, so Invalidate does nothing.
type cachedDiscovery struct {
	discovery.DiscoveryInterface
	session *Session
}

var _ discovery.CachedDiscoveryInterface = (*cachedDiscovery)(nil)

func (d *cachedDiscovery) Fresh() bool { return true }

func (d *cachedDiscovery) Invalidate() {}

func (d *cachedDiscovery) ServerVersion() (*version.Info, error) {
	return d.session.set().Version, nil
}

func (d *cachedDiscovery) ServerGroups() (*metav1.APIGroupList, error) {
	list := &metav1.APIGroupList{}
	for _, group := range d.session.set().groups {
		list.Groups = append(list.Groups, *group)
	}
	return list, nil
}

func (d *cachedDiscovery) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	return setDiscovery{set: d.session.set()}.ServerGroupsAndResources()
}

func (d *cachedDiscovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return discovery.ServerPreferredResources(d)
}

func (d *cachedDiscovery) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	for _, list := range d.session.set().resources {
		if list.GroupVersion == groupVersion {
			return list, nil
		}
	}
	return d.DiscoveryInterface.ServerResourcesForGroupVersion(groupVersion)
}

// mapper implements meta.RESTMapper with the cached APIs of the cluster. It refreshes them when a kind is missing.
type mapper struct{ session *Session }

var _ meta.RESTMapper = (*mapper)(nil)

func lookup[T any](m *mapper, find func(meta.RESTMapper) (T, error)) (T, error) {
	found, err := find(m.session.set().mapper)
	if meta.IsNoMatchError(err) && m.session.refreshOnMiss() {
		return find(m.session.set().mapper)
	}
	return found, err
}

func (m *mapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return lookup(m, func(r meta.RESTMapper) (schema.GroupVersionKind, error) { return r.KindFor(resource) })
}

func (m *mapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return lookup(m, func(r meta.RESTMapper) ([]schema.GroupVersionKind, error) { return r.KindsFor(resource) })
}

func (m *mapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return lookup(m, func(r meta.RESTMapper) (schema.GroupVersionResource, error) { return r.ResourceFor(input) })
}

func (m *mapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return lookup(m, func(r meta.RESTMapper) ([]schema.GroupVersionResource, error) { return r.ResourcesFor(input) })
}

func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return lookup(m, func(r meta.RESTMapper) (*meta.RESTMapping, error) { return r.RESTMapping(kind, versions...) })
}

func (m *mapper) RESTMappings(kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return lookup(m, func(r meta.RESTMapper) ([]*meta.RESTMapping, error) { return r.RESTMappings(kind, versions...) })
}

func (m *mapper) ResourceSingularizer(resource string) (string, error) {
	return m.session.set().mapper.ResourceSingularizer(resource)
}
