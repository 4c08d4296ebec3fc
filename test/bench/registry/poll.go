// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const (
	// shortestWait is how long daemons wait for tasks on a small site. On a larger one they wait
	// until so long before a report is due.
	shortestWait = 20 * time.Second
	dueSoon      = 5 * time.Second
)

// waitOf is how long a host waits for tasks that is to report so often.
func waitOf(every time.Duration) time.Duration { return max(shortestWait, every-dueSoon) }

// pulse has hosts wait for tasks and report in turns, until stop.
type pulse struct {
	hearts []*heart
	end    context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	errs   []error
}

// startPulse has each host wait for as long as every, the first time for a part of that, so that
// they are spread evenly.
func startPulse(ctx context.Context, hearts []*heart, every time.Duration, random *rand.Rand) *pulse {
	p := &pulse{hearts: hearts}
	ctx, p.end = context.WithCancel(ctx)
	for _, h := range hearts {
		h.every = every
		first := time.Duration(random.Int64N(int64(waitOf(every))))
		p.done.Go(func() {
			if err := h.live(ctx, first); err != nil && ctx.Err() == nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.errs = append(p.errs, err)
			}
		})
	}
	return p
}

// live waits for tasks, the first time for so long, and reports, again and again.
func (h *heart) live(ctx context.Context, wait time.Duration) error {
	for ctx.Err() == nil {
		if err := h.poll(wait); err != nil {
			return err
		}
		h.sent.waits.Add(1)
		if err := h.beat(); err != nil {
			return err
		}
		wait = waitOf(h.every)
	}
	return nil
}

// stop disconnects the hosts, and returns why some had ended before.
func (p *pulse) stop() error {
	p.end()
	for _, h := range p.hearts {
		h.close()
	}
	p.done.Wait()
	return errors.Join(p.errs...)
}

// poll waits for tasks.
func (c *conn) poll(wait time.Duration) error {
	c.out = fmt.Appendf(c.out[:0], "GET /v1/hosts/%s/tasks?session=bench&wait_seconds=%d", c.host.id, int(wait/time.Second))
	c.out = append(append(c.out, c.host.headers...), "\r\n"...)
	if err := c.tls.SetDeadline(time.Now().Add(wait + answerTimeout)); err != nil {
		return fmt.Errorf("send poll: %w", err)
	}
	if _, err := c.tls.Write(c.out); err != nil {
		return fmt.Errorf("send poll: %w", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c.tls), nil)
	if err != nil {
		return fmt.Errorf("read answer to poll: %w", err)
	}
	body, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return fmt.Errorf("read answer to poll: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("poll: answer %d: %s", answer.StatusCode, body)
	}
	return nil
}
