// Package cpulimit limits the CPU time of calls. A template or a schema cannot be interrupted, so the process exits if one of
// them uses too much. Before that, a call that uses much gets a lower priority than the others.
package cpulimit

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ExitCode is the exit code of a process in which a call has used too much CPU time. The manager knows it.
	ExitCode = 86
	// DefaultBudget is the CPU time that a call may use.
	DefaultBudget = time.Minute
	// interval is how often the CPU time of a call is read.
	interval = time.Second
	// firstInterval is how often it is read before the call gets a lower priority.
	firstInterval = 250 * time.Millisecond
	// lowerAfter is the CPU time after which a call gets a lower priority.
	lowerAfter = 200 * time.Millisecond
	// heavyNice is the nice value of such a call: it gets a tenth of the CPU time of others in the container, if they need it.
	heavyNice = 10
)

// Limit is the limit of every call.
type Limit struct {
	budget time.Duration
	// exceeded is called once a call has used more. It should exit the process.
	exceeded func()
}

// New returns a limit that calls exceeded when a call has used more CPU time than budget.
func New(budget time.Duration, exceeded func()) *Limit {
	return &Limit{budget: budget, exceeded: exceeded}
}

// Run calls work on a thread of its own, so that its CPU time can be read, and returns when it has ended. What other goroutines
// do for it is not counted. A nil limit has no effect.
func (l *Limit) Run(work func()) {
	if l == nil {
		work()
		return
	}
	runtime.LockOSThread()
	thread := unix.Gettid()
	clock := threadClock(thread)
	// The thread may have worked for other calls before.
	watch := &watch{limit: l, thread: thread, clock: clock, start: cpuTime(clock)}
	watch.timer.start(min(firstInterval, l.budget), watch.check)
	defer func() {
		watch.timer.stop()
		// Only root may raise a priority again. A thread that stays locked ends with its goroutine.
		if !watch.lowered {
			runtime.UnlockOSThread()
		}
	}()
	work()
}

// watch reads the CPU time of a thread.
type watch struct {
	limit  *Limit
	thread int
	clock  int32
	start  time.Duration
	timer  stoppable
	// lowered is whether the thread has a lower priority. It does not change after the timer was stopped.
	lowered bool
}

func (w *watch) check() {
	used := cpuTime(w.clock) - w.start
	if used > w.limit.budget {
		w.timer.ifRunning(w.limit.exceeded)
		return
	}
	if used <= lowerAfter {
		w.timer.again(firstInterval)
		return
	}
	if !w.lowered {
		w.timer.ifRunning(w.lower)
	}
	w.timer.again(interval)
}

// lower lowers the priority of the thread. If that is not possible, or the process has a low priority itself, it keeps its
// priority.
func (w *watch) lower() {
	// The kernel returns 20 minus the nice value.
	value, err := unix.Getpriority(unix.PRIO_PROCESS, w.thread)
	if err == nil && 20-value < heavyNice {
		w.lowered = unix.Setpriority(unix.PRIO_PROCESS, w.thread, heavyNice) == nil
	}
}

// threadClock returns the clock of the CPU time of a thread of this process, as the kernel encodes it.
func threadClock(thread int) int32 {
	const perThread, scheduler = 4, 2
	return int32(^thread<<3 | perThread | scheduler) //nolint:gosec // the encoding of the kernel
}

// cpuTime returns the CPU time of a thread. It is 0 if the thread has ended.
func cpuTime(clock int32) time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(clock, &used); err != nil {
		return 0
	}
	return time.Duration(used.Nano())
}
