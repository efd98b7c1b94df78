package operation

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLeaseExpired is the error of every request after the manager's Lease has expired.
var ErrLeaseExpired = errors.New("this manager no longer holds the Lease")

// leaseCheckInterval is the longest time between two checks of the clock. Go's timers stop while the machine is
// suspended, CLOCK_BOOTTIME does not.
const leaseCheckInterval = time.Second

// Lease is the manager's right to change clusters, up to a time of CLOCK_BOOTTIME. It has no limit until SetUntil is
// called, for a manager without leader election.
type Lease struct {
	mu      sync.Mutex
	limited bool
	until   time.Duration
	timer   *time.Timer
	held    context.Context
	expire  context.CancelCauseFunc
}

// NewLease returns a lease without limit.
func NewLease() *Lease {
	held, expire := context.WithCancelCause(context.Background())
	return &Lease{held: held, expire: expire}
}

// SetUntil replaces the limit by until, a time of CLOCK_BOOTTIME.
func (l *Lease) SetUntil(until time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limited, l.until = true, until
	if l.held.Err() != nil {
		l.held, l.expire = context.WithCancelCause(context.Background())
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(leaseCheckInterval, func() { _ = l.Err() })
	}
	_ = l.check()
}

// Err returns ErrLeaseExpired if the limit has passed, and nil otherwise.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check()
}

// Context returns a context that is canceled with the cause ErrLeaseExpired when the limit passes.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// check compares the limit with the clock, and cancels the context or schedules the next check.
func (l *Lease) check() error {
	if !l.limited {
		return nil
	}
	remaining := l.until - BootTime()
	if remaining <= 0 {
		l.timer.Stop()
		l.expire(ErrLeaseExpired)
		return ErrLeaseExpired
	}
	l.timer.Reset(min(remaining, leaseCheckInterval))
	return nil
}

// BootTime returns the time of CLOCK_BOOTTIME: since the boot of the machine, including time in suspend.
func BootTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		// Every limit has passed. Linux has this clock, so this does not happen.
		return math.MaxInt64
	}
	return time.Duration(now.Nano())
}
