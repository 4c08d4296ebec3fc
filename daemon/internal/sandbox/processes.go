// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/volferry/volferry/daemon/internal/process"
)

const processesTimeout = 30 * time.Second

// Processes reads other processes through `volferryd processes`, which can see their open files.
type Processes struct {
	Socket string
}

// Claims calls process.Dir.Claims in `volferryd processes`.
func (p Processes) Claims(ctx context.Context, id string, images []process.Image) (claims []process.Claim, err error) {
	err = p.ask(ctx, request{Call: callClaims, Name: id, Images: images}, &claims)
	return claims, err
}

// About calls process.Dir.About in `volferryd processes`.
func (p Processes) About(ctx context.Context, pid int) (about process.About, err error) {
	err = p.ask(ctx, request{Call: callProcess, PID: pid}, &about)
	return about, err
}

// ClosedFor calls process.Dir.ClosedFor in `volferryd processes`.
func (p Processes) ClosedFor(ctx context.Context, pid int, image process.Image) (closed time.Duration, err error) {
	err = p.ask(ctx, request{Call: callClosedFor, PID: pid, Images: []process.Image{image}}, &closed)
	return closed, err
}

func (p Processes) ask(ctx context.Context, in request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, processesTimeout)
	defer cancel()
	out, _, err := ask(ctx, p.Socket, in, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(out.Value, into)
}

// ServeProcesses serves Processes at a socket until ctx ends, and closes the socket.
func ServeProcesses(ctx context.Context, listener *net.UnixListener, dir process.Dir, log *slog.Logger) error {
	return serve(ctx, listener, func(ctx context.Context, in request, _ *os.File) (out answer, none *os.File) {
		var found any
		var err error
		switch in.Call {
		case callClaims:
			found, err = dir.Claims(ctx, in.Name, in.Images)
		case callProcess:
			found, err = dir.About(ctx, in.PID)
		case callClosedFor:
			if len(in.Images) != 1 {
				return failed(fmt.Errorf("the call %q is about one image", in.Call)), nil
			}
			ctx, cancel := context.WithTimeout(ctx, processesTimeout)
			defer cancel()
			found, err = dir.ClosedFor(ctx, in.PID, in.Images[0])
		default:
			err = fmt.Errorf("there is no call %q here", in.Call)
		}
		if err == nil {
			out.Value, err = json.Marshal(found)
		}
		if err != nil {
			return failed(err), nil
		}
		return out, nil
	}, log)
}
