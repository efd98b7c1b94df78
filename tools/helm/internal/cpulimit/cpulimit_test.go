package cpulimit

import (
	"testing"
	"time"
)

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
