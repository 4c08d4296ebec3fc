// SPDX-License-Identifier: Apache-2.0

package hosttest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/hv/hvtest"
)

// Operator acts as a person who types an error's commands on the host.
type Operator struct {
	Fake *hvtest.Fake
	// Volferryctl carries out a command line of volferryctl, without the program's name.
	Volferryctl func(words []string) error
	// CutOff is how many of the next image conversions end after their first block.
	CutOff int

	dumped map[string]hv.Domain // by file
	// leased has the domains that were suspended during the pivot of a disk. With a lock manager,
	// libvirt gives each the lease of its new image then, and refuses to resume it.
	leased map[string]bool
}

var quoted = regexp.MustCompile("`([^`]+)`")

// CommandsIn returns the commands between backticks in an error.
func CommandsIn(text string) (lines []string) {
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// Type carries out a command line, perhaps several joined by &&. Commands that only show something
// do nothing.
func (o *Operator) Type(line string) error {
	for command := range strings.SplitSeq(line, " && ") {
		if err := o.typeOne(command); err != nil {
			return err
		}
	}
	return nil
}

func (o *Operator) typeOne(line string) error {
	words, into, err := shellWords(line)
	if err != nil {
		return err
	}
	switch words[0] {
	case "virsh":
		err = o.virsh(words[1], words[2:], into)
	case "volferryctl":
		if len(words) == 4 && words[1] == "instance" && words[2] == "unpause" {
			err = o.unpause(words[3])
		} else {
			err = o.Volferryctl(words[1:])
		}
	case "qemu-img":
		err = o.convert(words[1:])
	case "grep":
		err = o.isArgument(words[1:])
	case "kill":
		err = o.kill(words[1])
	case "rm":
		err = os.Remove(words[1])
	case "mv":
		err = o.rename(words[1:])
	default:
		err = errors.New("nobody can type that here")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	return nil
}

func (o *Operator) virsh(verb string, words []string, into string) error {
	ctx := context.Background()
	names, options := operands(words)
	switch verb {
	case "define":
		return o.define(names[0])
	case "pool-start":
		return o.startPool(names[0])
	}
	id, err := o.idOf(names[0])
	if err != nil {
		return err
	}
	switch verb {
	case "destroy":
		return o.Fake.Destroy(id)
	case "shutdown":
		return o.Fake.Stop(id)
	case "start":
		return o.Fake.Start(id)
	case "suspend":
		return o.Fake.Suspend(ctx, id)
	case "resume":
		if o.leased[id] {
			return errors.New("resource busy: Lockspace resource is locked")
		}
		return o.Fake.Resume(ctx, id)
	case "dumpxml":
		return o.dump(id, into)
	case "detach-disk":
		for flag, where := range map[string]hv.Where{"--live": hv.Live, "--config": hv.Config} {
			if slices.Contains(options, flag) {
				err = errors.Join(err, o.Fake.DetachDisk(ctx, id, where, names[1]))
			}
		}
		return err
	case "blockjob":
		return o.Fake.AbortJob(ctx, id, names[1])
	case "blockcommit":
		if err := Commit(o.Fake, id, names[1]); err != nil {
			return err
		}
		dom, err := o.Fake.Domain(ctx, id)
		if base := words[slices.Index(words, "--base")+1]; err == nil && dom.LiveDisk(names[1]).Top().Path != base {
			err = fmt.Errorf("the guest is on %s", dom.LiveDisk(names[1]).Top().Path)
		}
		if err == nil && dom.State == hv.StatePaused {
			o.leased = map[string]bool{id: true}
		}
		return err
	}
	return errors.New("nobody can type that here")
}

// unpause drops the lease that the suspended domain does not need, like volferryd.
func (o *Operator) unpause(name string) error {
	id, err := o.idOf(name)
	if err != nil {
		return err
	}
	delete(o.leased, id)
	return o.Fake.Resume(context.Background(), id)
}

func operands(words []string) (names, options []string) {
	for i := 0; i < len(words); i++ {
		switch {
		case words[i] == "--":
			return append(names, words[i+1:]...), options
		case !strings.HasPrefix(words[i], "--"):
			names = append(names, words[i])
		default:
			options = append(options, words[i])
			if words[i] == "--base" {
				i++
			}
		}
	}
	return names, options
}

// Commit does the work of virsh blockcommit --active --pivot on a running guest's disk.
func Commit(f *hvtest.Fake, id, target string) error {
	ctx := context.Background()
	if err := f.CommitActive(ctx, id, target, 0); err != nil {
		return err
	}
	for {
		err := f.Pivot(ctx, id, target)
		if !errors.Is(err, hv.ErrNotReady) {
			return err
		}
		if _, err = f.Domain(ctx, id); err != nil { // the job continues
			return err
		}
	}
}

func (o *Operator) idOf(ref string) (string, error) {
	doms, err := o.Fake.Domains(context.Background())
	if err != nil {
		return "", err
	}
	for i := range doms {
		if doms[i].Name == ref || doms[i].ID == ref {
			return doms[i].ID, nil
		}
	}
	return "", fmt.Errorf("failed to get domain %q", ref)
}

func (o *Operator) dump(id, file string) error {
	dom, err := o.Fake.Domain(context.Background(), id)
	if err != nil || file == "" {
		return err
	}
	if dom.State.Active() {
		dom.Config = dom.Live
	}
	o.Keep(file, *dom)
	return nil
}

// Keep gives the operator a file with a domain's definition.
func (o *Operator) Keep(file string, dom hv.Domain) {
	if o.dumped == nil {
		o.dumped = map[string]hv.Domain{}
	}
	o.dumped[file] = dom
}

func (o *Operator) define(file string) error {
	dom, ok := o.dumped[file]
	if !ok {
		return fmt.Errorf("there is no file %s", file)
	}
	if _, err := o.idOf(dom.ID); err == nil {
		return o.Fake.Redefine(dom.ID, dom.Config)
	}
	return o.Fake.Define(dom)
}

func (o *Operator) startPool(name string) error {
	pools, err := o.Fake.Pools(context.Background())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(pools, func(p hv.PoolInfo) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("no pool %s", name)
	}
	pools[i].Active = true
	o.Fake.AddPool(pools[i])
	return nil
}

// isArgument does the work of grep -zxqF -e TEXT /proc/PID/cmdline: it succeeds if a domain's
// process has the domain's id as an argument.
func (o *Operator) isArgument(words []string) error {
	const flags = "-zxqF -e"
	if len(words) != 4 || strings.Join(words[:2], " ") != flags {
		return errors.New("nobody can type that here")
	}
	var pid int
	if _, err := fmt.Sscanf(words[3], "/proc/%d/cmdline", &pid); err != nil {
		return err
	}
	if id, err := o.Fake.DomainOfProcess(pid); err != nil || id != words[2] {
		return errors.Join(err, fmt.Errorf("process %d has no argument %s", pid, words[2]))
	}
	return nil
}

func (o *Operator) kill(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	return o.Fake.CrashProcess(n)
}

func (o *Operator) rename(words []string) error {
	if len(words) != 3 || words[0] != "-n" {
		return errors.New("nobody can type that here")
	}
	if err := o.Fake.Link(words[1], words[2]); err != nil {
		return err
	}
	return o.Fake.Images.Remove(words[1])
}

func (o *Operator) convert(words []string) error {
	const flags = "convert -n -t writeback -f"
	if len(words) != 10 || strings.Join(words[:5], " ") != flags || words[6] != "-O" {
		return errors.New("nobody can type that here")
	}
	from, to := words[8], words[9]
	for i, path := range []string{from, to} {
		info, err := o.Fake.Info(path)
		if err != nil {
			return err
		}
		if format := words[5+2*i]; info.Format != format {
			return fmt.Errorf("%s is %s and not %s", path, info.Format, format)
		}
	}
	content, err := o.Fake.ReadImage(from)
	if err != nil {
		return err
	}
	info, err := o.Fake.Info(to)
	blocks := info.SizeBytes / hvtest.BlockSize
	if o.CutOff > 0 {
		o.CutOff, blocks = o.CutOff-1, 1
	}
	for block := int64(0); err == nil && block < blocks; block++ {
		err = o.Fake.WriteBlock(to, block, content[block])
	}
	return err
}

// shellWords splits a command line as a shell does, with single quotes. into is the file for its
// output.
func shellWords(line string) (words []string, into string, err error) {
	word, in, quote := "", false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quote, in = !quote, true
		case quote, r != ' ':
			word, in = word+string(r), true
		case in:
			words, word, in = append(words, word), "", false
		}
	}
	if in {
		words = append(words, word)
	}
	if i := slices.Index(words, ">"); i >= 0 && i == len(words)-2 {
		words, into = words[:i], words[i+1]
	}
	if quote || len(words) < 2 || strings.ContainsAny(strings.Join(words, ""), "`\"\\") {
		return nil, "", fmt.Errorf("no shell takes %q", line)
	}
	return words, into, nil
}
