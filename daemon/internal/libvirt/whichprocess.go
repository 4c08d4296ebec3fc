// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
)

// Process implements hv.Hypervisor. A process can falsely claim to be the domain, see
// findProcesses: if several do, nobody can tell here which claim is true.
func (c *Conn) Process(ctx context.Context, id, target string) (hv.Process, error) {
	p, err := c.whichProcess(ctx, strings.ToLower(id), target)
	if err != nil {
		return hv.Process{}, fmt.Errorf("find the process of domain %s: %w", id, err)
	}
	return p, nil
}

func (c *Conn) whichProcess(ctx context.Context, id, target string) (p hv.Process, err error) {
	proc, err := c.onlyProcess(ctx, id)
	if err != nil {
		return p, err
	}
	if p.ID, err = proc.identity(); errors.Is(err, os.ErrNotExist) {
		return p, hv.ErrNotActive // ended since
	} else if err != nil {
		return p, err
	}
	began, err := proc.began()
	if err != nil {
		return p, err
	}
	for _, n := range began {
		p.Images = append(p.Images, n.Filename)
	}
	disk, err := c.diskElement(ctx, id, hv.Live, target)
	if errors.Is(err, hv.ErrNotFound) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	if source := disk.SelectElement("source"); source != nil {
		path := source.SelectAttrValue("file", source.SelectAttrValue("dev", ""))
		name := "libvirt-" + source.SelectAttrValue("index", "") + "-storage"
		p.Kept = slices.Contains(began, blockNode{path, name})
	}
	return p, nil
}

// onlyProcess is the one process that claims to be an active domain.
func (c *Conn) onlyProcess(ctx context.Context, id string) (process, error) {
	found, err := findProcesses(id)
	if err == nil {
		err = c.oneIsTrue(ctx, id, found)
	}
	if err != nil {
		return process{}, err
	}
	if len(found) != 1 {
		return process{}, fmt.Errorf("%w: %d name its UUID", hv.ErrNoProcess, len(found))
	}
	return found[0], nil
}

// startTime is the number of the field of /proc/PID/stat that says when the process was
// started, counted after its name, which ends with the last bracket.
const startTime = 22 - 3

// identity tells a process from all others: its number is given out again, but not with
// the time of its start since boot, and in another boot.
func (p process) identity() (string, error) {
	ticks, err := p.startTicks()
	if err != nil {
		return "", err
	}
	boot, err := os.ReadFile(filepath.Join(procDir, "sys", "kernel", "random", "boot_id"))
	if err != nil {
		return "", err
	}
	return strings.Join([]string{strings.TrimSpace(string(boot)), filepath.Base(p.dir), ticks}, "/"), nil
}

// startTicks is when the process was started, in ticks since boot.
func (p process) startTicks() (string, error) {
	stat, err := os.ReadFile(filepath.Join(p.dir, "stat"))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= startTime {
		return "", fmt.Errorf("%w: no start time in %s/stat", hv.ErrNoProcess, p.dir)
	}
	return fields[startTime], nil
}

// blockNode is an image in QEMU's own graph. libvirt gives no name of a node twice in
// the life of a process, and shows its number as the index of a <source>.
type blockNode struct {
	Filename string `json:"filename"`
	Name     string `json:"node-name"`
}

// began lists the images that a process was started with, by its command line.
func (p process) began() (nodes []blockNode, err error) {
	cmdline, err := os.ReadFile(filepath.Join(p.dir, "cmdline"))
	if err != nil {
		return nil, err
	}
	args := strings.Split(string(cmdline), "\x00")
	for i, arg := range args {
		var n blockNode
		if i > 0 && args[i-1] == "-blockdev" && json.Unmarshal([]byte(arg), &n) == nil && n.Filename != "" {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}
