// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// eventIDs are the subscribed events. BLOCK_JOB is the old event, which names a disk by path:
// go-libvirt drops BLOCK_JOB_2 and BLOCK_THRESHOLD.
var eventIDs = []golibvirt.DomainEventID{
	golibvirt.DomainEventIDLifecycle,
	golibvirt.DomainEventIDIoErrorReason,
	golibvirt.DomainEventIDBlockJob,
	golibvirt.DomainEventIDDeviceRemoved,
	golibvirt.DomainEventIDDeviceRemovalFailed,
}

// subscribe passes the events of every domain to the feed for the life of the session. go-libvirt
// ignores a domain given to SubscribeEvents, so one subscription serves all.
func (c *connection) subscribe(ctx context.Context, s *session) error {
	for _, id := range eventIDs {
		events, err := call(ctx, s, func(lv *golibvirt.Libvirt) (<-chan any, error) {
			// Never cancelled, and drained to the end below: an unsubscribe deadlocks go-libvirt's
			// reader if an event arrives meanwhile. The channel closes with the connection.
			return lv.SubscribeEvents(context.WithoutCancel(ctx), id, nil)
		})
		if err != nil {
			return fmt.Errorf("subscribe to event %d: %w", id, err)
		}
		go func() {
			for msg := range events {
				if ev, ok := translate(msg); ok {
					c.feed.Publish(ev)
				}
			}
		}()
	}
	return nil
}

func translate(msg any) (hv.Event, bool) {
	switch m := msg.(type) {
	case *golibvirt.DomainEventCallbackLifecycleMsg:
		return hv.Event{
			Kind:     hv.EventLifecycle,
			DomainID: domainID(m.Msg.Dom),
			Detail:   lifecycleNames[golibvirt.DomainEventType(m.Msg.Event)],
		}, true
	case *golibvirt.DomainEventCallbackIOErrorReasonMsg:
		return hv.Event{
			Kind:     hv.EventIOError,
			DomainID: domainID(m.Msg.Dom),
			Path:     m.Msg.SrcPath,
			Detail:   m.Msg.Reason,
			Paused:   golibvirt.DomainEventIOErrorAction(m.Msg.Action) == golibvirt.DomainEventIoErrorPause,
		}, true
	case *golibvirt.DomainEventCallbackBlockJobMsg:
		return hv.Event{
			Kind:     hv.EventBlockJob,
			DomainID: domainID(m.Msg.Dom),
			Path:     m.Msg.Path,
			Detail:   blockJobNames[golibvirt.ConnectDomainEventBlockJobStatus(m.Msg.Status)],
		}, true
	// Both events name the device by libvirt's alias, which the next disk in its place gets too.
	case *golibvirt.DomainEventCallbackDeviceRemovedMsg:
		return hv.Event{Kind: hv.EventDeviceRemoved, DomainID: domainID(m.Msg.Dom)}, true
	case *golibvirt.DomainEventCallbackDeviceRemovalFailedMsg:
		return hv.Event{Kind: hv.EventDeviceRemoved, DomainID: domainID(m.Dom), Detail: "failed"}, true
	}
	return hv.Event{}, false
}

var lifecycleNames = map[golibvirt.DomainEventType]string{
	golibvirt.DomainEventDefined:     "defined",
	golibvirt.DomainEventUndefined:   "undefined",
	golibvirt.DomainEventStarted:     "started",
	golibvirt.DomainEventSuspended:   "suspended",
	golibvirt.DomainEventResumed:     "resumed",
	golibvirt.DomainEventStopped:     "stopped",
	golibvirt.DomainEventShutdown:    "shutdown",
	golibvirt.DomainEventPmsuspended: "pmsuspended",
	golibvirt.DomainEventCrashed:     "crashed",
}

var blockJobNames = map[golibvirt.ConnectDomainEventBlockJobStatus]string{
	golibvirt.DomainBlockJobCompleted: "completed",
	golibvirt.DomainBlockJobFailed:    "failed",
	golibvirt.DomainBlockJobCanceled:  "canceled",
	golibvirt.DomainBlockJobReady:     "ready",
}
