// Package lru implements a cache that evicts the least recently used entries.
package lru

import (
	"container/list"
	"sync"
)

type entry[V any] struct {
	key    string
	value  V
	weight int
}

// Cache is an LRU cache with a limit on the total weight of its entries. It never evicts the newest entry. It is safe
// for concurrent use.
type Cache[V any] struct {
	mu      sync.Mutex
	limit   int
	weight  int
	order   *list.List
	entries map[string]*list.Element
	evicted func(V)
}

// New returns a cache whose entries weigh at most limit in total. It calls evicted, which may be nil, with every
// evicted value.
func New[V any](limit int, evicted func(V)) *Cache[V] {
	return &Cache[V]{limit: limit, order: list.New(), entries: map[string]*list.Element{}, evicted: evicted}
}

// Get returns the value of key and marks it as used.
func (c *Cache[V]) Get(key string) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.order.MoveToFront(element)
		return element.Value.(*entry[V]).value, true
	}
	var zero V
	return zero, false
}

// Add stores value unless key is present, and returns the stored value.
func (c *Cache[V]) Add(key string, value V, weight int) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.order.MoveToFront(element)
		return element.Value.(*entry[V]).value
	}
	c.entries[key] = c.order.PushFront(&entry[V]{key: key, value: value, weight: weight})
	c.weight += weight
	for c.weight > c.limit && c.order.Len() > 1 {
		c.evict(c.order.Back())
	}
	return value
}

// Len returns the number of entries.
func (c *Cache[V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}

func (c *Cache[V]) evict(element *list.Element) {
	old := c.order.Remove(element).(*entry[V])
	delete(c.entries, old.key)
	c.weight -= old.weight
	if c.evicted != nil {
		c.evicted(old.value)
	}
}
