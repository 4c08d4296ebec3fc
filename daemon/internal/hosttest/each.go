// SPDX-License-Identifier: Apache-2.0

package hosttest

// Each visits a list as a registry's client does.
func Each[T any](all []T, err error) func(do func(*T) error) error {
	return func(do func(*T) error) error {
		if err != nil {
			return err
		}
		for i := range all {
			if err := do(&all[i]); err != nil {
				return err
			}
		}
		return nil
	}
}
