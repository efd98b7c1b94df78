package cpulimit

import (
	"sync"
	"time"
)

// stoppable is a timer that does not fire again after it was stopped, even if it fires at that moment.
type stoppable struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func (s *stoppable) start(after time.Duration, fire func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timer = time.AfterFunc(after, fire)
}

// ifRunning calls act unless the timer was stopped. The timer is not stopped meanwhile.
func (s *stoppable) ifRunning(act func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		act()
	}
}

func (s *stoppable) again(after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.timer.Reset(after)
	}
}

func (s *stoppable) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.timer.Stop()
}
