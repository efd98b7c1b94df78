// Command cosign generates key pairs and signs images with cosign's own packages and flags. The whole cosign, with its other
// commands and the SDKs of clouds, takes minutes to compile.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/sigstore/cosign/v3/cmd/cosign/cli/generate"
	"github.com/sigstore/cosign/v3/cmd/cosign/cli/options"
	"github.com/sigstore/cosign/v3/cmd/cosign/cli/sign"
	"github.com/sigstore/cosign/v3/cmd/cosign/cli/trustedroot"
	"github.com/spf13/cobra"
)

const timeout = 3 * time.Minute

func main() {
	root := &cobra.Command{Use: "cosign", SilenceUsage: true}
	root.AddCommand(generateKeyPair(), signImages(), trustedRoot())
	if err := root.Execute(); err != nil {
		os.Exit(1)
	}
}

func generateKeyPair() *cobra.Command {
	return &cobra.Command{
		Use:  "generate-key-pair",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return generate.GenerateKeyPairCmd(command.Context(), "", "cosign", nil)
		},
	}
}

// signImages signs with a key, without a transparency log.
func signImages() *cobra.Command {
	flags := &options.SignOptions{}
	command := &cobra.Command{
		Use:  "sign IMAGE...",
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, images []string) error {
			if flags.TlogUpload || flags.UseSigningConfig {
				return fmt.Errorf("set --tlog-upload=false and --use-signing-config=false: nothing else is built in")
			}
			key := options.KeyOpts{
				KeyRef:           flags.Key,
				PassFunc:         generate.GetPass,
				SkipConfirmation: flags.SkipConfirmation,
				NewBundleFormat:  flags.NewBundleFormat,
			}
			return sign.SignCmd(command.Context(), &options.RootOptions{Timeout: timeout}, key, *flags, images)
		},
	}
	flags.AddFlags(command)
	return command
}

// trustedRoot creates a file with certificate authorities and transparency logs.
func trustedRoot() *cobra.Command {
	flags := &options.TrustedRootCreateOptions{}
	create := &cobra.Command{
		Use:  "create",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			root := &trustedroot.CreateCmd{FulcioSpecs: flags.Fulcio, RekorSpecs: flags.Rekor, Out: flags.Out}
			return root.Exec(command.Context())
		},
	}
	flags.AddFlags(create)
	command := &cobra.Command{Use: "trusted-root"}
	command.AddCommand(create)
	return command
}
