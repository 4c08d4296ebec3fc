// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/volferry/volferry/internal/humanize"
	"github.com/volferry/volferry/internal/mtls"
	"github.com/volferry/volferry/internal/settings"
	"github.com/volferry/volferry/internal/shell"
	"github.com/volferry/volferry/registry/internal/server"
)

const serverName = "server"

var initCACommand = command{
	name: "init-ca", args: "[--server-name NAME ...]",
	place:   "tls-dir",
	summary: "make the site's certificate authority and the server certificate",
	help: `It makes ca.crt, server.crt, server.key and the deny-list in the TLS directory,
and ca.key there or in --ca-dir, and replaces nothing. Run it as the user that the registry
runs as; or, with a --ca-dir of root's own, as root, where the TLS directory is the registry's. Keep
a copy of ca.key where nobody else reads it: who has it can be any host.
`,
	flags: func(set *flag.FlagSet, o *options) {
		caDir(set)
		set.Func("server-name", "`name` or address under which hosts reach the registry; may be repeated; without it the name of this host", func(v string) error {
			o.serverNames = append(o.serverNames, v)
			return nil
		})
		days(set, o)
	},
	run: initCA,
}

var issueCertCommand = command{
	name: "issue-cert", args: "host NAME | operator NAME --role ROLE | server [NAME...]", min: 1, max: -1,
	place:   "tls-dir",
	summary: "make a certificate with its key",
	help: `host:     for the daemon of a host. The id is the host's for good: give the one that
          "volferryctl host list" shows if the registry knows the host already.
operator: for a person or a program; ROLE is read, operate or fence.
server:   for the registry itself, by the names under which hosts reach it; without a
          name those of the certificate that it has.

The files are ca.crt and KIND.crt (0644) and KIND.key (0600). With --replace they are
put over those that are there, which is how a certificate is renewed: for the same
host, operator and names unless others are given. Registry and daemons take up
what is new by themselves.
`,
	flags: func(set *flag.FlagSet, o *options) {
		caDir(set)
		set.StringVar(&o.id, "id", "", "id of the host (`UUID`); without it a new one")
		set.StringVar(&o.role, "role", "", "`role` of the operator: read, operate or fence")
		set.StringVar(&o.out, "out", "", "`directory` of the files, also relative to where you are; without it ./NAME, for the server the TLS directory")
		set.BoolVar(&o.replace, "replace", false, "replace the files that are there")
		days(set, o)
	},
	run: issueCert,
}

var revokeCommand = command{
	name: "revoke", args: "CERT-FILE|SPKI|HOST-ID", min: 1, max: 1,
	place:   "tls-dir",
	summary: "refuse a certificate from now on, or all that a host was given",
	help: `It adds the public key to the deny-list in the TLS directory. The registry looks at
it with every request, so the next one is refused, on connections that are open as
well. SPKI is the SHA-256 of the public key in hex, as issue-cert prints it. With the id
of a host every certificate is refused that was issued to it here and is recorded (the file
issued beside the authority's key), also those that were replaced and have not ended yet.
`,
	run: revoke,
}

func caDir(set *flag.FlagSet) { set.String("ca-dir", "", placeHelp["ca-dir"]) }

func days(set *flag.FlagSet, o *options) {
	set.IntVar(&o.days, "days", int(mtls.DefaultValidity/mtls.Day), fmt.Sprintf("`number` of days that the certificate is good for, at most %d", mtls.MaxValidity/mtls.Day))
}

func (o *options) valid() (time.Duration, error) {
	if o.days < 1 || o.days > int(mtls.MaxValidity/mtls.Day) {
		return 0, settings.Usagef("--days is %d; a certificate can be good for 1 to %d days", o.days, mtls.MaxValidity/mtls.Day)
	}
	return time.Duration(o.days) * mtls.Day, nil
}

func initCA(_ context.Context, in *invocation) error {
	valid, err := in.valid()
	if err != nil {
		return err
	}
	names := in.serverNames
	if len(names) == 0 {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the name of this host; give --server-name: %w", err)
		}
		names = []string{name}
	}
	// Refuse wrong names before the authority is made.
	if err := mtls.CheckServerNames(names); err != nil {
		return err
	}
	dir := in.cfg.TLSDir
	ca, err := mtls.CreateCA(dir, in.cfg.keyDir())
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("there is an authority already, and another one would lock out everybody who has a certificate of it; for a server certificate use %s issue-cert server: %w", server.Program, err)
	}
	if err != nil {
		return err
	}
	pair, err := ca.IssueServer(names, valid)
	if err != nil {
		return err
	}
	if err := pair.Write(dir, serverName); err != nil {
		return err
	}
	in.printf(`made the authority and the server certificate for %s in %s

Next:
  keep a copy of %s in a safe place
  restart the registry; from then on it listens at %s for other hosts. With the unit of
  the package enable the socket before:  systemctl enable volferry-registry-tls.socket
  on this host, for each other host:  %s issue-cert host NAME
  renew the server certificate within %s:  %s issue-cert server --replace
`, strings.Join(names, ", "), dir, filepath.Join(in.cfg.keyDir(), mtls.CAKeyFile), defaultListen, server.Program, humanize.Count(in.days, "day"), server.Program)
	return nil
}

func issueCert(_ context.Context, in *invocation) error {
	valid, err := in.valid()
	if err != nil {
		return err
	}
	ca, err := mtls.LoadCA(in.cfg.TLSDir, in.cfg.keyDir())
	if err != nil {
		return fmt.Errorf("read the authority (%s init-ca makes it): %w", server.Program, err)
	}
	kind, names := in.args[0], in.args[1:]
	if err := in.fits(kind); err != nil {
		return err
	}
	switch {
	case kind == serverName:
		return in.issueServer(ca, names, valid)
	case kind != string(mtls.KindHost) && kind != string(mtls.KindOperator):
		return settings.Usagef("a certificate is for a host, an operator or the server, not for %q", kind)
	case len(names) != 1:
		return settings.Usagef("give one NAME for the %s", kind)
	}
	if in.out == "" {
		in.out = names[0]
	}
	var pair mtls.Pair
	if kind == string(mtls.KindHost) {
		pair, err = in.issueHost(ca, names[0], valid)
	} else {
		pair, err = in.issueOperator(ca, names[0], valid)
	}
	if err != nil {
		return err
	}
	cert, err := pair.Identity()
	if err != nil {
		return err
	}
	if err := mtls.Record(in.cfg.keyDir(), cert); err != nil {
		return err
	}
	if err := in.write(pair, kind); err != nil {
		return err
	}
	return in.printIssued(kind)
}

func (in *invocation) fits(kind string) error {
	if in.id != "" && kind != string(mtls.KindHost) {
		return settings.Usagef("--id is of hosts alone")
	}
	if in.role != "" && kind != string(mtls.KindOperator) {
		return settings.Usagef("--role is of operators alone")
	}
	return nil
}

// known returns the identity in the certificate to replace; false if there is none.
func (in *invocation) known(kind mtls.Kind, name string) (mtls.Identity, bool, error) {
	if !in.replace {
		return mtls.Identity{}, false, nil
	}
	path := filepath.Join(in.out, string(kind)+".crt")
	old, err := mtls.IdentityIn(in.out, string(kind)+".crt")
	if errors.Is(err, fs.ErrNotExist) {
		return mtls.Identity{}, false, nil
	}
	if err == nil && (old.Kind != kind || old.Name != name) {
		err = fmt.Errorf("%s is of %s; it is not replaced by a certificate of %s %s", path, old, kind, name)
	}
	return old, err == nil, err
}

func (in *invocation) issueHost(ca *mtls.CA, name string, valid time.Duration) (mtls.Pair, error) {
	old, known, err := in.known(mtls.KindHost, name)
	switch {
	case err != nil:
		return mtls.Pair{}, err
	case known && in.id != "" && in.id != old.ID:
		return mtls.Pair{}, fmt.Errorf("the certificate in %s is of the host id %s; a host keeps its id", in.out, old.ID)
	case known:
		in.id = old.ID
	case in.id == "" && in.replace:
		// A new id would be a new host, and the registry would refuse its name.
		return mtls.Pair{}, fmt.Errorf("there is no certificate in %s to replace: name its directory with --out, or give the host's id with --id (`%s` has it)", in.out, shell.Line("volferryctl", "host", "show", name))
	case in.id == "":
		in.id = uuid.NewString()
	}
	return ca.IssueHost(in.id, name, valid)
}

func (in *invocation) issueOperator(ca *mtls.CA, name string, valid time.Duration) (mtls.Pair, error) {
	old, known, err := in.known(mtls.KindOperator, name)
	if err != nil {
		return mtls.Pair{}, err
	}
	if known && in.role == "" {
		in.role = old.Role.String()
	}
	if in.role == "" {
		return mtls.Pair{}, settings.Usagef("give --role: read, operate (and read) or fence (and operate)")
	}
	role, err := mtls.ParseRole(in.role)
	if err != nil {
		return mtls.Pair{}, settings.Usagef("--role: %w", err)
	}
	return ca.IssueOperator(role, name, valid)
}

func (in *invocation) issueServer(ca *mtls.CA, names []string, valid time.Duration) error {
	if in.out == "" {
		in.out = in.cfg.TLSDir
	}
	if len(names) == 0 {
		cert, err := mtls.ReadCertificate(in.out, mtls.ServerCertFile)
		if err != nil {
			return fmt.Errorf("give the names under which hosts reach the registry; those of its certificate are not known: %w", err)
		}
		names = mtls.ServerNames(cert)
	}
	pair, err := ca.IssueServer(names, valid)
	if err != nil {
		return err
	}
	if err := in.write(pair, serverName); err != nil {
		return err
	}
	in.printf("the server certificate in %s is for %s and good for %s\nA registry that runs takes it up by itself.\n", in.out, strings.Join(names, ", "), humanize.Count(in.days, "day"))
	return nil
}

func (in *invocation) write(pair mtls.Pair, name string) error {
	if in.replace {
		return pair.Replace(in.out, name)
	}
	err := pair.Write(in.out, name)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w; --replace renews a certificate, --out names another directory", err)
	}
	return err
}

func (in *invocation) printIssued(kind string) error {
	path := filepath.Join(in.out, kind+".crt")
	id, err := mtls.IdentityIn(in.out, kind+".crt")
	if err != nil {
		return err
	}
	in.printf("%s: %s\ngood until %s, public key %s\n", path, id, id.NotAfter.UTC().Format(time.RFC3339), id.SPKI)
	if id.Kind == mtls.KindHost && !in.replace {
		in.printf(`
Next, on host %s:
  copy the three files of %s to /etc/volferry/tls, over a safe way, and delete them here
  in /etc/volferry/volferryd.toml:  registry = "https://REGISTRY%s"
  restart volferryd
`, id.Name, in.out, defaultListen)
	}
	return nil
}

func revokeHost(in *invocation, hostID string) error {
	keys, err := mtls.Issued(in.cfg.keyDir(), hostID)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		return fmt.Errorf("no certificate is recorded in %s that was issued to a host with the id %s; give the certificate or its key", in.cfg.keyDir(), hostID)
	}
	for _, spki := range keys {
		if _, err := mtls.Deny(in.cfg.TLSDir, spki, "host id="+hostID); err != nil {
			return err
		}
	}
	in.printf("revoked %s of host %s, and a registry that runs refuses what is revoked from now on\n", humanize.Count(len(keys), "certificate"), hostID)
	return nil
}

func revoke(_ context.Context, in *invocation) error {
	if id, err := uuid.Parse(in.args[0]); err == nil && id.String() == in.args[0] {
		return revokeHost(in, in.args[0])
	}
	whose := "given by its key"
	spki, err := mtls.ParseSPKI(in.args[0])
	if err != nil {
		id, err := mtls.IdentityOfFile(in.args[0])
		if err != nil {
			return fmt.Errorf("%s is neither a certificate of a host or operator nor the SHA-256 of a public key: %w", in.args[0], err)
		}
		spki, whose = id.SPKI, id.String()
	}
	added, err := mtls.Deny(in.cfg.TLSDir, spki, whose)
	if err != nil {
		return err
	}
	if !added {
		in.printf("%s was revoked already\n", spki)
		return nil
	}
	in.printf("revoked %s (%s); a registry that runs refuses it from now on\n", spki, whose)
	return nil
}
