// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

var policyTexts = map[string]string{
	api.PolicyMultiattach:         "a volume of a multiattach type may be made, retyped to, or attached again",
	api.PolicyMultiattachBootable: "the same for a bootable volume, and a multiattach volume may be made bootable",
}

// Policies are the policies of the site.
type Policies struct{ db *DB }

// All returns every policy, by name.
func (s *Policies) All(ctx context.Context) ([]api.Policy, error) {
	scan := func(row ledger.Scanner) (api.Policy, error) {
		var p api.Policy
		err := row.Scan(&p.Name, &p.Enabled)
		p.Description = policyTexts[p.Name]
		return p, err
	}
	return ledger.QueryAll(ctx, s.db.sqlite.Read, scan, "SELECT name, enabled FROM policies ORDER BY name")
}

// Set turns a policy on or off for later requests.
func (s *Policies) Set(ctx context.Context, call Call, name string, in api.PolicyUpdate) (api.Policy, error) {
	return Mutate(ctx, s.db, call, "policy.set", []any{name, in}, func(ctx context.Context, tx *Tx) (api.Policy, error) {
		if err := tx.CheckOperator("change a policy"); err != nil {
			return api.Policy{}, err
		}
		if policyTexts[name] == "" {
			known := []string{api.PolicyMultiattach, api.PolicyMultiattachBootable}
			return api.Policy{}, api.Errorf(api.CodeNotFound, "there is no policy %s; there are %s", validate.Quote(name), strings.Join(known, " and "))
		}
		was, err := policyOn(ctx, tx, name)
		if err != nil {
			return api.Policy{}, err
		}
		if err := tx.Exec(ctx, "UPDATE policies SET enabled = ? WHERE name = ?", in.Enabled, name); err != nil {
			return api.Policy{}, err
		}
		return api.Policy{Name: name, Enabled: in.Enabled, Description: policyTexts[name]},
			tx.Audit(ctx, api.Event{What: "policy.set", Object: "policy/" + name, From: onOff(was), To: onOff(in.Enabled)})
	})
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func policyOn(ctx context.Context, q ledger.Querier, name string) (on bool, err error) {
	if err := q.QueryRowContext(ctx, "SELECT enabled FROM policies WHERE name = ?", name).Scan(&on); err != nil {
		return false, fmt.Errorf("read policy %s: %w", name, err)
	}
	return on, nil
}

// checkPolicies refuses an action that the policies forbid for a volume of a multiattach type. what
// describes the action, like "attach volume x again".
func checkPolicies(ctx context.Context, q ledger.Querier, what string, bootable bool) error {
	if err := checkPolicy(ctx, q, what, api.PolicyMultiattach); err != nil || !bootable {
		return err
	}
	return checkPolicy(ctx, q, what+", which is bootable", api.PolicyMultiattachBootable)
}

func checkPolicy(ctx context.Context, q ledger.Querier, what, name string) error {
	on, err := policyOn(ctx, q, name)
	if err != nil || on {
		return err
	}
	return api.Errorf(api.CodePolicyDenied, "cannot %s: the policy %s is off", what, name).With("policy", name)
}
