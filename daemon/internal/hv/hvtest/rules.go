// SPDX-License-Identifier: Apache-2.0

package hvtest

import (
	"context"
	"fmt"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// WriteDeniedBy implements hv.Hypervisor with the rules of DenyWrite and Confine.
func (f *Fake) WriteDeniedBy(ctx context.Context, id, path string) (rule *hv.Rule, err error) {
	err = f.call(ctx, "WriteDeniedBy", func() error {
		dom, err := f.findActive(id)
		if err != nil {
			return err
		}
		if file := f.deniedBy(dom, path); file != "" {
			rule = &hv.Rule{File: file, Path: path}
		}
		return nil
	})
	return rule, err
}

// Confinement implements hv.Hypervisor.
func (f *Fake) Confinement(ctx context.Context, id string) (c hv.Confinement, err error) {
	err = f.call(ctx, "Confinement", func() error {
		dom, err := f.findActive(id)
		if err == nil && f.confined != "" {
			c.Profile = "libvirt-" + dom.ID
		}
		return err
	})
	return c, err
}

// DeniesBelow implements hv.Hypervisor.
func (f *Fake) DeniesBelow(ctx context.Context, id string) (denies bool, err error) {
	err = f.call(ctx, "DeniesBelow", func() error {
		_, err := f.findActive(id)
		denies = err == nil && f.confined != ""
		return err
	})
	return denies, err
}

// DenyWrite adds a rule in a file that denies writes to the image at path to every domain's new
// jobs. Nothing removes the rule.
func (f *Fake) DenyWrite(path, file string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denied[path] = file
}

// Confine makes the fake keep rules in a file as libvirt before 12.1.0 does with AppArmor. It makes
// all rules of a domain when the domain starts, when a disk leaves it or cannot be attached, and
// when a block job of it ends, and denies writes to each image below another one.
func (f *Fake) Confine(file string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confined = file
}

func (f *Fake) makeRules(dom *domain) {
	dom.deniedBelow = map[string]bool{}
	for i := range dom.Live {
		for depth, img := range dom.Live[i].Chain {
			if depth > 0 {
				dom.deniedBelow[img.Path] = true
			}
		}
	}
}

// deniedBy returns the file of the rule that denies writes to a domain's new jobs, or "".
func (f *Fake) deniedBy(dom *domain, path string) string {
	if f.confined != "" && dom.deniedBelow[path] {
		return f.confined
	}
	return f.denied[path]
}

func (f *Fake) mayWrite(dom *domain, path string) error {
	if f.deniedBy(dom, path) != "" {
		return fmt.Errorf("could not reopen file %s: Permission denied", path)
	}
	return nil
}
