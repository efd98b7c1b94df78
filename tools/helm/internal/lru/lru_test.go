package lru

import (
	"slices"
	"testing"
)

func TestCacheEvictsTheLeastRecentlyUsed(t *testing.T) {
	var evicted []string
	cache := New(3, func(v string) { evicted = append(evicted, v) })
	cache.Add("a", "a", 1)
	cache.Add("b", "b", 1)
	cache.Get("a")
	cache.Add("c", "c", 2)
	if want := []string{"b"}; !slices.Equal(evicted, want) {
		t.Fatalf("evicted %v, want %v", evicted, want)
	}
	if _, ok := cache.Get("a"); !ok {
		t.Fatal("a was used after b but was evicted")
	}
}

func TestCacheKeepsTheNewestEntry(t *testing.T) {
	cache := New[int](1, nil)
	cache.Add("a", 1, 100)
	if _, ok := cache.Get("a"); !ok || cache.Len() != 1 {
		t.Fatal("the newest entry was evicted")
	}
}

func TestAddReturnsTheStoredValue(t *testing.T) {
	cache := New[int](10, nil)
	cache.Add("a", 1, 1)
	if got := cache.Add("a", 2, 1); got != 1 {
		t.Fatalf("got %d, want the first value", got)
	}
}
