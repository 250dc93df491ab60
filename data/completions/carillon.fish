# SPDX-License-Identifier: Apache-2.0

# `carillon complete` computes the candidates, and asks a running service for names.
function __carillon_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l current (commandline --current-token --cut-at-cursor)
    set -l answer ($words[1] complete -- $words[2..-1] (string unescape -- "$current"; or echo -- "$current") 2>/dev/null)
    if test "$answer[1]" = files
        __fish_complete_path "$current"
    else if set -q answer[2]
        printf '%s\n' $answer[2..-1]
    end
end

complete --command carillon --no-files --keep-order --arguments '(__carillon_complete)'
