package cpulimit

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// priority returns the nice value of a thread. The kernel returns 20 minus it.
func priority(t *testing.T, thread int) int {
	t.Helper()
	value, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	if err != nil {
		t.Error(err)
	}
	return 20 - value
}

// spin uses CPU time until exceeded is closed, or for too long.
func spin(exceeded <-chan struct{}) bool {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		select {
		case <-exceeded:
			return true
		default:
		}
	}
	return false
}

func TestACallThatUsesTooMuchIsReported(t *testing.T) {
	exceeded := make(chan struct{})
	New(50*time.Millisecond, func() { close(exceeded) }).Run(func() {
		if !spin(exceeded) {
			t.Error("it was not reported")
		}
	})
}

func TestOnlyTheCPUTimeOfTheCallCounts(t *testing.T) {
	limit := New(300*time.Millisecond, func() { t.Error("it has used nothing") })
	stop := make(chan struct{})
	go spin(stop)
	limit.Run(func() { time.Sleep(700 * time.Millisecond) })
	close(stop)
	(*Limit)(nil).Run(func() {})
}

func TestACallThatUsesMuchGetsALowerPriorityAndNoOther(t *testing.T) {
	limit := New(time.Minute, func() { t.Error("it may use more") })
	usual := priority(t, 0)
	if usual >= heavyNice {
		t.Skip("the tests run with a low priority themselves")
	}
	// A goroutine of its own, as each call has.
	ended := make(chan int)
	go func() {
		limit.Run(func() {
			thread := unix.Gettid()
			for end := time.Now().Add(20 * time.Second); priority(t, thread) != heavyNice; {
				if time.Now().After(end) {
					t.Error("its priority was not lowered")
					break
				}
			}
			ended <- thread
		})
	}()
	lowered := <-ended
	limit.Run(func() {
		if unix.Gettid() == lowered || priority(t, 0) != usual {
			t.Error("another call has the lower priority")
		}
	})
}
