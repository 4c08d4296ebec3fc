// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// The caller that notices a hung libvirtd closes all sessions. That includes a session that is
// still being made, with a watchdog of its own.
func TestALaneIsClosedWhileItsSessionIsBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lane
		answers := make(chan error, 2)
		dials := 0
		ask := func() {
			_, err := l.session(t.Context(), func(ctx context.Context) (*session, error) {
				dials++
				<-ctx.Done() // only this ends it
				return nil, context.Cause(ctx)
			})
			answers <- err
		}
		go ask()
		synctest.Wait()
		go ask() // waits for the first
		synctest.Wait()
		go l.close()
		for range 2 {
			if err := <-answers; !errors.Is(err, hv.ErrUnavailable) {
				t.Errorf("the answer is %v, want that libvirt is not available", err)
			}
		}
		if dials != 1 {
			t.Errorf("%d sessions were begun, want one", dials)
		}
	})
}

func TestACallerWhoLeavesALaneLeavesItToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lane
		impatient, leave := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := l.session(impatient, func(ctx context.Context) (*session, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
			first <- err
		}()
		synctest.Wait()
		made := &session{conn: &watchedConn{lost: make(chan struct{})}}
		second := make(chan *session, 1)
		go func() {
			s, err := l.session(t.Context(), func(context.Context) (*session, error) { return made, nil })
			if err != nil {
				t.Error(err)
			}
			second <- s
		}()
		synctest.Wait()
		leave()
		if err := <-first; err == nil {
			t.Error("who has left has a session")
		}
		if got := <-second; got != made {
			t.Error("who waited has not the session that was made then")
		}
	})
}
