package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kandev/plugin-host/contract"
)

// complete offers a closed set of values for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	completeBy(cmd, flag, func(*cobra.Command) []string { return values })
}

// completeBy offers values that are looked up.
func completeBy(cmd *cobra.Command, flag string, values func(cmd *cobra.Command) []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return startingWith(values(cmd), begun), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag doesn't exist: a mistake of this program
	}
}

// completeCapabilities offers the capability IDs of the contract.
func completeCapabilities(cmd *cobra.Command, flag string) {
	complete(cmd, flag, contract.AllCapabilities.IDs()...)
}

func startingWith(values []string, begun string) []string {
	var fit []string
	for _, v := range values {
		if strings.HasPrefix(v, begun) {
			fit = append(fit, v)
		}
	}
	return fit
}

// completeNames offers the names of the installations, for the first argument. A
// cluster that can't be asked completes nothing.
func (t *tool) completeNames(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := t.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	all, err := c.installations(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Name)
	}
	return startingWith(names, begun), cobra.ShellCompDirectiveNoFileComp
}
