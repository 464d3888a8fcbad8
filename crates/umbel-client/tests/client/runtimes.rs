//! A client that is called from several runtimes, one after the other.

use tokio::runtime::Builder;
use umbel_client::{ClientOptions, Hashing};

use crate::fake::Cluster;
use crate::{client, options};

#[test]
fn a_client_outlives_the_runtimes_of_its_calls() {
    let servers = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cluster = servers.block_on(Cluster::start(1));
    cluster.put("seen", Hashing::Keyed, 0);
    // A connection whose runtime ended costs no attempt, so that calls that are sent once succeed, too.
    let client = client(&cluster, ClientOptions { attempt_count_max: 1, ..options() });
    for item in ["a", "b", "c"] {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let inserted = runtime.block_on(client.filter("seen").insert([item])).unwrap();
        assert_eq!(inserted.new_count(), 1, "{item}");
        // By the connection for changes.
        assert_eq!(runtime.block_on(client.clear("seen")).unwrap().generation, 2, "{item}");
    }
}
