//! Transactions on a node that refuses those that others could come between.

use super::resp_test::{Client, node_with};

const REFUSED: &str = "-EXECABORT Transaction discarded because of: other clients' commands could come between, and \
                       resp_multi is strict: send the commands without MULTI\r\n";

async fn queue(client: &mut Client, commands: &[&str]) {
    client.call("MULTI", "+OK\r\n").await;
    for command in commands {
        client.call(command, "+QUEUED\r\n").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_node_executes_what_nothing_can_come_between() {
    let (_folder, node) = node_with(|config| config.resp_multi = "strict".into()).await;
    let mut client = Client::new(&node).await;
    queue(&mut client, &["BF.ADD k x", "BF.EXISTS k x"]).await;
    client.call("EXEC", REFUSED).await;
    // Nothing was done, and the transaction is over.
    client.call("EXISTS k", ":0\r\n").await;
    client.call("EXEC", "-ERR EXEC without MULTI\r\n").await;
    queue(&mut client, &["PING", "SELECT 1", "CLIENT SETNAME n", "BF.MADD k x y"]).await;
    client.call("EXEC", "*4\r\n+PONG\r\n+OK\r\n+OK\r\n*2\r\n:1\r\n:1\r\n").await;
    queue(&mut client, &["READONLY", "BF.EXISTS k x", "READWRITE", "ASKING"]).await;
    client.call("EXEC", "*4\r\n+OK\r\n:1\r\n+OK\r\n+OK\r\n").await;
    // They say something about the node, which others change.
    queue(&mut client, &["UMBEL.SESSION", "INFO"]).await;
    client.call("EXEC", REFUSED).await;
    queue(&mut client, &[]).await;
    client.call("EXEC", "*0\r\n").await;
    // What could not be queued is the first reason.
    queue(&mut client, &["BF.ADD k x", "BF.ADD k y"]).await;
    client.call("BF.ADD k", "-ERR wrong number of arguments for 'bf.add' command\r\n").await;
    client.call("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n").await;
    node.shutdown().await;
}
