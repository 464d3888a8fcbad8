#!/usr/bin/env bash
# One dedup job on four machines: sbatch deploy/dedup/slurm.sh INPUT OUTPUT
#
# INPUT and OUTPUT are folders that all machines mount; worker N reads INPUT/N and writes OUTPUT/N/. A
# job that was ended early (time limit, lost machine) goes on when it is submitted again with the same
# two folders and finds the same number of machines: what was done is kept in OUTPUT/.job.
#
#SBATCH --job-name=umbel-dedup
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=32G
#SBATCH --time=08:00:00
#SBATCH --requeue
set -euo pipefail

input=${1:?the folder of inputs, with one folder a worker}
output=${2:?the folder of outputs}
port=7400

# The secret says which job it is, and workers speak TLS with keys that come from it: it stays for as
# long as the job can be taken up again, on whatever machines.
mkdir -p "$output/.job"
token=$output/.job/token
if [[ ! -s $token ]]; then
    (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$token")
fi

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
peers=
for rank in "${!hosts[@]}"; do
    peers+=${peers:+,}${hosts[rank]}:$port
done

export input output token peers
# One failed worker must not end the others at once: they wait for it, and say what is missing.
# shellcheck disable=SC2016 # every task puts in its own rank
srun --kill-on-bad-exit=0 bash -c '
    exec umbel dedup "$input/$SLURM_PROCID" \
        --rank "$SLURM_PROCID" \
        --peers "$peers" \
        --job-token-file "$token" \
        --job-dir "$output/.job/$SLURM_PROCID" \
        --output "$output/$SLURM_PROCID/" \
        --summary "$output/summary.json" \
        --memory 28G \
        --worker-timeout 30m \
        --quiet
'
