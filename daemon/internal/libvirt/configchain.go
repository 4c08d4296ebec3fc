// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/libvirt/domainxml"
)

// SetConfigChain replaces the images of one disk of the persistent definition: libvirt replaces
// the whole <disk> in one step. It is edited as text, which keeps elements unknown to Go types.
func (ch *chains) SetConfigChain(ctx context.Context, id, target string, chain []hv.Image) error {
	if err := ch.setConfigChain(ctx, id, target, chain); err != nil {
		return fmt.Errorf("set persistent chain of disk %s of domain %s: %w", target, id, err)
	}
	return nil
}

func (ch *chains) setConfigChain(ctx context.Context, id, target string, chain []hv.Image) error {
	s, err := ch.connection.windows()
	if err != nil {
		return err
	}
	dom, err := handle(id)
	if err != nil {
		return err
	}
	doc, err := configXML(ctx, s, dom)
	if err != nil {
		return err
	}
	if same, err := domainxml.HasConfigChain(doc, target, chain, ch.clusters); err != nil || same {
		ch.library.note(keptDefinitions, nil) // whichever program changed it
		return err
	}
	edited, err := domainxml.Rechain(doc, target, chain, ch.clusters)
	if err != nil {
		return err
	}
	// See modify: an abandoned call still takes effect.
	_, err = changing(context.WithoutCancel(ctx), ch.library, s, s.callTimeout, keptDefinitions, func(lv *golibvirt.Libvirt) (none, error) {
		return none{}, lv.DomainUpdateDeviceFlags(dom, edited, golibvirt.DomainDeviceModifyConfig)
	})
	if err != nil {
		return err
	}
	if doc, err = configXML(ctx, s, dom); err != nil {
		return err
	}
	same, err := domainxml.HasConfigChain(doc, target, chain, ch.clusters)
	if err == nil && !same {
		err = errors.New("libvirt accepted the change and does not show it")
	}
	return err
}
