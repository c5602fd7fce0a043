package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell completion script",
		Long: `Print the completion script of a shell. To have it in every new shell:

  bash  deepwork completion bash > ~/.local/share/bash-completion/completions/deepwork
  zsh   deepwork completion zsh > "${fpath[1]}/_deepwork"
  fish  deepwork completion fish > ~/.config/fish/completions/deepwork.fish`,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := takes(1, 1, "one of "+strings.Join(shells, ", "))(cmd, args); err != nil {
				return err
			}
			if !slices.Contains(shells, args[0]) {
				return usagef(cmd, "unknown shell %q; there are %s", args[0], strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(a.out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(a.out)
			default:
				return cmd.Root().GenFishCompletion(a.out, true)
			}
		},
	}
}
