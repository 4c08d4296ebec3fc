// SPDX-License-Identifier: Apache-2.0

package load

// Summary is what a load on a server came to, as one program writes it for another.
type Summary struct {
	Changes   int     `json:"changes"`
	Cycles    int     `json:"cycles"`
	Seconds   float64 `json:"seconds"`
	P50       float64 `json:"p50_seconds"`
	P99       float64 `json:"p99_seconds"`
	P999      float64 `json:"p999_seconds"`
	ServerCPU float64 `json:"server_cpu_seconds"`
	LoadCPU   float64 `json:"load_cpu_seconds"`
	OthersCPU float64 `json:"others_cpu_seconds"`
}
