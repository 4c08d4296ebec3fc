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

// maxPollers is how many of the hosts wait for tasks: each needs a second connection, and programs
// may have 20,000 files open where this was measured.
const maxPollers = 8000

// pollers wait for tasks, as daemons do beside their reports, until stop.
type pollers struct {
	conns []*conn
	end   context.CancelFunc
	done  sync.WaitGroup
	mu    sync.Mutex
	errs  []error
}

// connectPollers connects for the first of the hosts once more, and has each ask once: the registry closes
// connections of which nothing comes.
func connectPollers(ctx context.Context, address string, hearts []*heart) (*pollers, error) {
	p := &pollers{conns: make([]*conn, min(len(hearts), maxPollers))}
	return p, inParallel(heartbeaters, func(first int) (err error) {
		for i := first; i < len(p.conns) && err == nil; i += heartbeaters {
			if p.conns[i], err = dial(ctx, address, hearts[i].host); err == nil {
				err = p.conns[i].poll(0)
			}
		}
		return err
	})
}

// start has each wait for as long as every again and again, the first time for a part of that, so
// that they are spread evenly.
func (p *pollers) start(ctx context.Context, every time.Duration, random *rand.Rand) {
	ctx, p.end = context.WithCancel(ctx)
	for _, c := range p.conns {
		first := time.Duration(random.Int64N(int64(every)))
		p.done.Go(func() {
			for wait := first; ctx.Err() == nil; wait = every {
				if err := c.poll(wait); err != nil && ctx.Err() == nil {
					p.mu.Lock()
					p.errs = append(p.errs, err)
					p.mu.Unlock()
					return
				}
			}
		})
	}
}

// stop ends all polls, and returns why some had ended before.
func (p *pollers) stop() error {
	if p.end != nil {
		p.end()
	}
	for _, c := range p.conns {
		if c != nil {
			c.close()
		}
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
